#pragma once
#include <cstddef>

#include "kernels/ops.h"

namespace canopy {

/// Bytes of weights that a GPU expands at once, and of what else passes through the scratch in
/// slices.
inline constexpr std::size_t kGpuSliceBytes = std::size_t{32} << 20;
inline constexpr std::size_t kGpuAlignment = 256;  // bytes, of what lies in the scratch

/// What the kernels of a GPU need of scratch for calls up to `largest` (Ops::scratch_bytes): also
/// where there is none, to plan for one. Pure.
std::size_t gpu_scratch_bytes(const Workload& largest);

}  // namespace canopy
