#pragma once
#include <cstdint>

namespace canopy {

/// Resident memory of this process as the kernel counts it (VmRSS, VmHWM), in bytes. Throws Error
/// where /proc is missing.
std::uint64_t resident_memory();
std::uint64_t peak_resident_memory();

}  // namespace canopy
