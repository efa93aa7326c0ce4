#pragma once
// Work that accesses of a warp make for a card's memory.
#include "tests/ptx/program.h"

namespace canopy::ptx {

/// Counts one access: sectors of global memory, turns of the banks of shared memory. Source: CUDA
/// C++ Programming Guide, "Device Memory Accesses": 32-byte sectors; 32 banks of 4 bytes, which
/// take a half of a warp at once where lanes ask for 8 bytes, and a quarter where they ask for 16.
void count_traffic(const Insn& insn, const std::uint64_t* addresses, Lanes lanes, Traffic& traffic);

}  // namespace canopy::ptx
