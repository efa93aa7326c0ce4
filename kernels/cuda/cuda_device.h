#pragma once
#include <memory>

#include "kernels/device.h"

namespace canopy::cuda {

/// The GPU `choice.ordinal`. Throws Error if there is none such, or if its driver, or cuBLAS,
/// cannot be used.
std::unique_ptr<Device> make_cuda_device(const DeviceChoice& choice);

}  // namespace canopy::cuda
