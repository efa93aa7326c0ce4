#pragma once
#include <cstddef>
#include <span>

#include "kernels/device.h"
#include "kernels/weight_view.h"
#include "src/checkpoint/checkpoint.h"

namespace canopy {

inline constexpr std::size_t kSlotAlignment = 256;  // bytes: what kernels like

/// A matrix of weights in memory. In the host's it lies where it was read, and its companion is the
/// tensor's own. A device with memory of its own has both: the companion begins at the next
/// multiple of kSlotAlignment after the matrix, and is copied there with it.

/// The matrix, where its bytes lie in the host's memory.
WeightView matrix_at(const std::byte* data, const TensorEntry& matrix);
/// Bytes that the matrix and its companion take of a device's memory.
std::size_t device_bytes(const TensorEntry& matrix);
WeightView matrix_on_device(const std::byte* data, const TensorEntry& matrix);
/// Queues the copy of such a matrix, whose bytes in host memory are `from`, to `to`, where there
/// are device_bytes() of it: in pieces, so that no other copy waits long.
void upload_matrix(Device& device, Stream& copy, std::byte* to, std::span<const std::byte> from,
                   const TensorEntry& matrix);
/// Queues the copy of the companion of such a matrix, which begins at `to`.
void upload_companion(Device& device, Stream& copy, std::byte* to, const TensorEntry& matrix);

}  // namespace canopy
