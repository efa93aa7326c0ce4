#pragma once
#include <cstdint>
#include <string>

namespace canopy {

/// "1.2 GiB": how messages and tables speak of sizes.
std::string format_size(std::uint64_t bytes);

}  // namespace canopy
