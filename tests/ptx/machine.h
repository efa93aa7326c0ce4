#pragma once
// A machine that runs kernels of PTX, and finds what would be wrong on a card: races, accesses
// outside of memory or misaligned, masks of a warp's exchanges that name other lanes than come,
// shared memory that is read before it is written, launches that no card takes.
//
// In: a kernel as parsed, the bytes of its arguments, a grid; memory at the host's addresses.
// Out: that memory, as a card would leave it, and faults in words. It knows nothing of time, of
// caches, and of what ptxas makes of the PTX.
#include <cstdint>
#include <random>
#include <span>

#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"

namespace canopy::ptx {

struct Launch {
  std::span<const std::byte> arguments;
  std::int64_t blocks = 1;
  int threads = kWarp;
  std::size_t shared_bytes = 0;  // besides the kernel's own
};

/// The order in which threads run. In step: each warp as far as it gets, its lanes together.
/// Else blocks, warps and lanes take turns at random.
struct Order {
  std::uint64_t seed = 0;  // 0: in step
};

/// Bytes of shared memory that every supported card can give a block (compute capability 8.6,
/// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
inline constexpr std::size_t kMostSharedBytes = 99u << 10;

/// Runs a kernel. A launch that cannot go on, as threads wait for others that never come, ends with
/// a fault.
void run(const Kernel& kernel, const Launch& launch, Order order, GlobalMemory& memory,
         Faults& faults);

}  // namespace canopy::ptx
