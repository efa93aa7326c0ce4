#pragma once
#include <cstdint>

namespace canopy {

/// The kinds of what a model's weights are read, lent and computed with as one.
enum class UnitKind : std::uint8_t { kAttention, kMlp, kHead, kRecurrent };

}  // namespace canopy
