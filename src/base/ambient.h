#pragma once
#include <cstdint>
#include <string>

namespace canopy {

// What a program asks of the world around it. Rooms below the front doors are told instead.

std::string today();  // "2026-01-31", UTC
/// A random seed that nobody has used.
std::uint64_t any_seed();

}  // namespace canopy
