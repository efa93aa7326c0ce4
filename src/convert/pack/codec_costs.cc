#include "src/convert/pack/codec_costs.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <span>
#include <utility>

#include "kernels/ops.h"
#include "src/base/formats/half.h"
#include "src/convert/pack/pack_row.h"

namespace canopy {

namespace {

constexpr std::size_t kColumns = 4096, kPattern = 64;  // rows that are drawn, and then repeated
constexpr int kTurns = 7;

/// A matrix in one form, in the device's memory.
class Matrix {
 public:
  Matrix(Device& device, Stream& stream, DType dtype, std::span<const std::uint16_t> pattern,
         std::size_t rows)
      : dtype_(dtype), rows_(static_cast<std::int64_t>(rows)) {
    std::vector<std::byte> once;
    std::vector<std::size_t> row_bytes;
    for (std::size_t row = 0; row < kPattern; ++row) {
      const std::size_t before = once.size();
      append(pattern.subspan(row * kColumns, kColumns), once);
      row_bytes.push_back(once.size() - before);
    }
    payload_ = device.allocate(once.size() * (rows / kPattern));
    for (std::size_t at = 0; at < payload_.bytes(); at += once.size())
      device.upload(stream, payload_.data() + at, once);
    if (const PackedFormat* const packed = find_packed_format(dtype)) {
      std::vector<std::size_t> all;
      while (all.size() < rows) all.insert(all.end(), row_bytes.begin(), row_bytes.end());
      const Companion offsets = companion_of_rows(*packed, all, kColumns);
      companion_ = device.allocate(offsets.bytes().size());
      device.upload(stream, companion_.data(), offsets.bytes());
      stream.synchronize();  // before the bytes are gone
    }
    stream.synchronize();
  }
  DType dtype() const { return dtype_; }
  double weights() const { return static_cast<double>(rows_) * kColumns; }
  double bits() const {
    return 8.0 * static_cast<double>(payload_.bytes() + companion_.bytes()) / weights();
  }
  WeightView view() const {
    const PackedFormat* const packed = find_packed_format(dtype_);
    if (packed == nullptr) return {payload_.data(), dtype_, rows_, kColumns};
    return {{payload_.data(), payload_.bytes()},
            {packed->companion, companion_.data()},
            dtype_,
            rows_,
            kColumns};
  }

 private:
  void append(std::span<const std::uint16_t> row, std::vector<std::byte>& out) const {
    if (dtype_ == DType::kBF16) {
      const auto bytes = std::as_bytes(row);
      out.insert(out.end(), bytes.begin(), bytes.end());
    } else {
      visit_format(PackedBf16Formats(), dtype_, [&](auto format) {
        require(pack_row(format, row, out), "normal weights can be packed");
      });
    }
  }

  DType dtype_;
  std::int64_t rows_;
  Buffer payload_, companion_;
};

}  // namespace

std::vector<CodecCost> measure_codecs(Device& device, std::size_t bytes) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<std::uint16_t> pattern(kPattern * kColumns);
  for (std::uint16_t& bits : pattern) bits = bf16_from_f32(normal(random));
  const std::size_t rows = std::max<std::size_t>(1, bytes / (2 * pattern.size())) * kPattern;
  const auto stream = device.make_stream("codecs");
  std::vector<DType> dtypes{DType::kBF16};
  for (const PackedFormat& format : kPackedFormats)
    if (format.plain == DType::kBF16) dtypes.push_back(format.dtype);
  std::vector<Matrix> matrices;
  for (const DType dtype : dtypes) matrices.emplace_back(device, *stream, dtype, pattern, rows);

  const Buffer x = device.allocate(kColumns * sizeof(float)),
               y = device.allocate(rows * sizeof(float));
  const std::vector<float> row(kColumns, 0.5f);
  device.upload(*stream, x.data(), std::as_bytes(std::span(row)));
  device.ops().reserve({.rows = 1, .columns = kColumns});
  stream->synchronize();
  const auto seconds = [&](const Matrix& matrix) {
    const std::array product{Projection{
        matrix.view(), {}, {y.data(), DType::kF32, {1, static_cast<std::int64_t>(rows)}}}};
    const auto start = std::chrono::steady_clock::now();
    device.ops().linear(*stream, {x.data(), DType::kF32, {1, kColumns}}, product);
    stream->synchronize();
    return Seconds(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<std::array<double, kTurns>> times(matrices.size());
  for (const Matrix& matrix : matrices) seconds(matrix);
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t i = 0; i < matrices.size(); ++i)
      times[i][static_cast<std::size_t>(turn)] = seconds(matrices[i]);
  std::vector<CodecCost> costs;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    std::ranges::nth_element(times[i], times[i].begin() + kTurns / 2);
    costs.push_back({matrices[i].dtype(), matrices[i].bits(),
                     Seconds(times[i][kTurns / 2] / matrices[i].weights())});
  }
  return costs;
}

}  // namespace canopy
