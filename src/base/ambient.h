#pragma once
#include <cstdint>
#include <ctime>
#include <string>

namespace canopy {

// The day, the time and a random seed, from the system. Rooms from src/engine down are given them
// instead.

std::string today();  // "2026-01-31", UTC
std::tm local_time();
/// A random seed that nobody has used.
std::uint64_t any_seed();

}  // namespace canopy
