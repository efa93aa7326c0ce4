#pragma once
#include <cstdint>

namespace canopy {

/// Memory that resident weights and texts share, at a time. Plain data.
struct PoolReport {
  std::uint64_t bytes = 0;     // of the pool; 0: each has memory of its own
  std::uint64_t weights = 0;   // of units or experts that stay until texts want their memory
  std::uint64_t texts = 0;     // of KV blocks that have memory: held, remembered, or free again
  std::uint64_t resident = 0;  // of all weights that stay, those outside of the pool among them
  std::uint64_t evicted = 0, returned = 0;  // units or experts, since the engine was loaded
};

}  // namespace canopy
