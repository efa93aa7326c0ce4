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

/// Normal values as elements of a plain format, kPattern rows; of FP8 with the largest weight near
/// the largest number, as scales make it.
std::vector<std::byte> drawn(DType plain) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes;
  const auto append = [&](auto element) {
    const auto own = std::as_bytes(std::span(&element, 1));
    bytes.insert(bytes.end(), own.begin(), own.end());
  };
  for (std::size_t i = 0; i < kPattern * kColumns; ++i)
    if (plain == DType::kBF16)
      append(bf16_from_f32(0.02f * normal(random)));
    else
      append(format::e4m3_from_f32(format::kLargestE4M3 / 4 * normal(random)));
  return bytes;
}

/// A matrix in one form, in the device's memory.
class Matrix {
 public:
  /// `pattern`: kPattern rows in the plain form.
  Matrix(Device& device, Stream& stream, DType dtype, std::span<const std::byte> pattern,
         std::size_t rows)
      : dtype_(dtype), rows_(static_cast<std::int64_t>(rows)) {
    std::vector<std::byte> once;
    std::vector<std::size_t> row_bytes;
    const std::size_t plain_row = pattern.size() / kPattern;
    for (std::size_t row = 0; row < kPattern; ++row) {
      const std::size_t before = once.size();
      append(pattern.subspan(row * plain_row, plain_row), once);
      row_bytes.push_back(once.size() - before);
    }
    payload_ = device.allocate(once.size() * (rows / kPattern));
    for (std::size_t at = 0; at < payload_.bytes(); at += once.size())
      device.upload(stream, payload_.data() + at, once);
    std::vector<std::size_t> all;
    while (all.size() < rows) all.insert(all.end(), row_bytes.begin(), row_bytes.end());
    const Companion companion = companion_of(all);
    if (!companion.empty()) {
      companion_format_ = companion.format();
      companion_ = device.allocate(companion.bytes().size());
      device.upload(stream, companion_.data(), companion.bytes());
    }
    stream.synchronize();  // before the bytes are gone
  }
  DType dtype() const { return dtype_; }
  double weights() const { return static_cast<double>(rows_) * kColumns; }
  double bits() const {
    return 8.0 * static_cast<double>(payload_.bytes() + companion_.bytes()) / weights();
  }
  WeightView view() const {
    if (companion_format_ == nullptr) return {payload_.data(), dtype_, rows_, kColumns};
    return {{payload_.data(), payload_.bytes()},
            {companion_format_, companion_.data()},
            dtype_,
            rows_,
            kColumns};
  }

 private:
  void append(std::span<const std::byte> row, std::vector<std::byte>& out) const {
    if (!is_packed(dtype_)) {
      out.insert(out.end(), row.begin(), row.end());
      return;
    }
    visit_format(PackedFormats(), dtype_, [&]<class Format>(Format format) {
      using Element = typename Format::Plain::Element;
      const std::span weights(reinterpret_cast<const Element*>(row.data()), kColumns);
      require(pack_row(format, weights, out), "normal weights can be packed");
    });
  }
  Companion companion_of(const std::vector<std::size_t>& row_bytes) const {
    const PackedFormat* const packed = find_packed_format(dtype_);
    const CompanionFormat* const fp8 = find_fp8_format(packed ? packed->plain : dtype_);
    const std::vector<float> scales(fp8 ? fp8->bytes(rows_, kColumns) / sizeof(float) : 0,
                                    0.08f / format::kLargestE4M3);
    if (packed) return companion_of_rows(*packed, row_bytes, kColumns, scales);
    if (!fp8) return {};
    const auto bytes = std::as_bytes(std::span(scales));
    return {*fp8, {bytes.begin(), bytes.end()}, rows_, kColumns, payload_.bytes()};
  }

  DType dtype_;
  std::int64_t rows_;
  const CompanionFormat* companion_format_ = nullptr;
  Buffer payload_, companion_;
};

}  // namespace

std::vector<CodecCost> measure_codecs(Device& device, std::size_t bytes, DType plain) {
  const std::vector<std::byte> pattern = drawn(plain);
  const std::size_t rows = std::max<std::size_t>(1, bytes / pattern.size()) * kPattern;
  const auto stream = device.make_stream("codecs");
  std::vector<DType> dtypes{plain};
  for (const PackedFormat& format : kPackedFormats)
    if (format.plain == plain) dtypes.push_back(format.dtype);
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
