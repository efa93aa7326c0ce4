#pragma once
#include "kernels/device.h"

namespace canopy::cuda {

Gpus find_gpus();  // see kernels/device.h

/// Throws Error, with the reason, unless there is such a GPU and this build's kernels run on it.
void require_gpu(int ordinal);

}  // namespace canopy::cuda
