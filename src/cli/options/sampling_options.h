#pragma once
#include <cstdint>
#include <optional>

#include "src/base/types.h"
#include "src/cli/options/flags.h"

namespace canopy::cli {

/// --temp, --top-k, --top-p, --seed.
struct SamplingOptions {
  Sampling sampling;
  std::optional<std::uint64_t> seed;  // nothing: the user leaves it open

  Flags flags();
};

}  // namespace canopy::cli
