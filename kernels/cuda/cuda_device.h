#pragma once
#include <memory>

#include "kernels/device.h"

namespace canopy::cuda {

/// How many GPUs this process may use: 0 without a driver, too.
int device_count();

/// The GPU `choice.ordinal`. Throws Error if there is none such, or if its driver, or cuBLAS,
/// cannot be used.
std::unique_ptr<Device> make_cuda_device(const DeviceChoice& choice);

}  // namespace canopy::cuda
