#pragma once
#include <cstdint>
#include <string>

namespace canopy {

// The day and a random seed, from the system. Rooms from src/engine down are given them instead.

std::string today();  // "2026-01-31", UTC
/// A random seed that nobody has used.
std::uint64_t any_seed();

}  // namespace canopy
