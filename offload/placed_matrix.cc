#include "offload/placed_matrix.h"

namespace canopy {

namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

WeightView view(const std::byte* data, const TensorEntry& matrix, const std::byte* companion) {
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  if (matrix.companion.empty()) return {data, matrix.dtype, rows, columns};
  return {{data, matrix.bytes},
          CompanionView{matrix.companion.format(), companion},
          matrix.dtype,
          rows,
          columns};
}

}  // namespace

WeightView matrix_at(const std::byte* data, const TensorEntry& matrix) {
  return view(data, matrix, matrix.companion.view().data);
}

std::size_t device_bytes(const TensorEntry& matrix) {
  return aligned(matrix.bytes) + aligned(matrix.companion.bytes().size());
}

WeightView matrix_on_device(const std::byte* data, const TensorEntry& matrix) {
  return view(data, matrix, data + aligned(matrix.bytes));
}

void upload_companion(Device& device, Stream& copy, std::byte* to, const TensorEntry& matrix) {
  if (!matrix.companion.empty())
    device.upload(copy, to + aligned(matrix.bytes), matrix.companion.bytes());
}

}  // namespace canopy
