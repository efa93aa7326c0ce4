#include "offload/placed_matrix.h"

#include <algorithm>

namespace canopy {

namespace {

// Most bytes that another copy to the device may have to wait for: 0.7 ms of a PCIe 4 link. A copy
// has a fixed cost of some microseconds (bench/gpu_probe.cu, h2d and latency).
constexpr std::size_t kPieceBytes = std::size_t{16} << 20;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

WeightView view(const std::byte* data, const TensorEntry& matrix, const std::byte* companion) {
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  const WeightView stored =
      matrix.companion.empty()
          ? WeightView(data, matrix.dtype, rows, columns)
          : WeightView({data, matrix.bytes}, CompanionView{matrix.companion.format(), companion},
                       matrix.dtype, rows, columns);
  return matrix.factors.empty() ? stored : stored.times(matrix.factors.front());
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

void upload_matrix(Device& device, Stream& copy, std::byte* to, std::span<const std::byte> from,
                   const TensorEntry& matrix) {
  for (std::size_t at = 0; at < from.size(); at += kPieceBytes)
    device.upload(copy, to + at, from.subspan(at, std::min(kPieceBytes, from.size() - at)));
  upload_companion(device, copy, to, matrix);
}

void upload_companion(Device& device, Stream& copy, std::byte* to, const TensorEntry& matrix) {
  if (!matrix.companion.empty())
    device.upload(copy, to + aligned(matrix.bytes), matrix.companion.bytes());
}

}  // namespace canopy
