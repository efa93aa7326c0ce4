#include "src/convert/quantize/block_quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "src/base/error.h"
#include "src/base/formats/half.h"
#include "src/base/formats/weight_format.h"
#include "src/convert/quantize/block_fit.h"
#include "src/convert/quantize/k_quant.h"

namespace canopy {

namespace {

constexpr std::size_t kBlock = 32;
using Block = std::span<const float, kBlock>;
using Codes = std::array<float, kBlock>;

void store_f16(float value, std::byte* out) {
  const std::uint16_t bits = f16_from_f32(value);
  std::memcpy(out, &bits, sizeof bits);
}

/// Byte i holds code i in its low half and code 16 + i in its high half.
void store_nibbles(const Codes& codes, float offset, std::byte* out) {
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    const auto low = static_cast<unsigned>(codes[i] + offset),
               high = static_cast<unsigned>(codes[i + kBlock / 2] + offset);
    out[i] = static_cast<std::byte>(low | high << 4);
  }
}

void quantize_block(format::Q4_0, Block x, std::byte* out) {
  // 5 to 8.6 steps to the value of largest magnitude.
  const Fit<kBlock> best = fit_scale<kBlock>(x, {-8, 7}, {5, 0.4f}, as_f16);
  store_f16(best.line.scale, out);
  store_nibbles(best.codes, 8, out + format::Q4_0::kCodesAt);
}
void quantize_block(format::Q4_1, Block x, std::byte* out) {
  const auto rounded = [](Line line) { return Line{as_f16(line.scale), as_f16(line.minimum)}; };
  const Fit<kBlock> best = fit_line<kBlock>(x, *std::min_element(x.begin(), x.end()), 15, rounded);
  store_f16(best.line.scale, out);
  store_f16(best.line.minimum, out + format::Q4_1::kMinimumAt);
  store_nibbles(best.codes, 0, out + format::Q4_1::kCodesAt);
}
void quantize_block(format::Q5_0, Block x, std::byte* out) {
  // 12 to 16.5 steps.
  const Fit<kBlock> best = fit_scale<kBlock>(x, {-16, 15}, {12, 0.5f}, as_f16);
  store_f16(best.line.scale, out);
  Codes low = best.codes;
  std::uint32_t high = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    low[i] += 16;
    if (low[i] < 16) continue;
    low[i] -= 16;
    high |= std::uint32_t{1} << i;
  }
  std::memcpy(out + format::Q5_0::kHighAt, &high, sizeof high);
  store_nibbles(low, 0, out + format::Q5_0::kCodesAt);
}
void quantize_block(format::Q8_0, Block x, std::byte* out) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  const Fit<kBlock> plain = fit<kBlock>(x, {as_f16(largest / 127)}, {-127, 127});
  store_f16(plain.line.scale, out);
  for (std::size_t i = 0; i < kBlock; ++i)
    out[format::Q8_0::kCodesAt + i] =
        static_cast<std::byte>(static_cast<std::int8_t>(plain.codes[i]));
}

}  // namespace

void quantize_row(DType type, std::span<const float> row, std::span<std::byte> out) {
  require(out.size() == row_bytes(type, static_cast<std::int64_t>(row.size())),
          "quantize_row: the output is not the size of the row");
  visit_format(WrittenFormats(), type, [&]<class Format>(Format to) {
    constexpr std::size_t kElements = Format::kBlockElements;
    for (std::size_t b = 0; b < row.size() / kElements; ++b)
      quantize_block(to, row.subspan(b * kElements).first<kElements>(),
                     out.data() + b * Format::kBlockBytes);
  });
}

}  // namespace canopy
