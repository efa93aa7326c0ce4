#include "kernels/gpu_scratch.h"

#include <algorithm>

namespace canopy {

std::size_t gpu_scratch_bytes(const Workload& largest) {
  const auto rows = static_cast<std::size_t>(largest.rows);
  const auto columns = static_cast<std::size_t>(largest.columns);
  const auto row = static_cast<std::size_t>(largest.kv_heads * largest.head_dim);
  const std::size_t of_linear =  // rounded inputs, a slice of the weights
      rows * columns * sizeof(std::uint16_t) + kGpuAlignment + kGpuSliceBytes;
  const std::size_t of_keep_kv = rows * row * sizeof(float);
  return std::max(of_linear, of_keep_kv);
}

}  // namespace canopy
