#pragma once
#include <cstdint>
#include <string>

#include "src/base/types.h"

namespace canopy {

/// "1.2 GiB": how messages and tables speak of sizes.
std::string format_size(std::uint64_t bytes);
/// "1.2 s"
std::string format_seconds(Seconds time);

}  // namespace canopy
