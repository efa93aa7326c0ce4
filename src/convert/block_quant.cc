#include "src/convert/block_quant.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "src/base/error.h"
#include "src/base/half.h"
#include "src/base/weight_format.h"

namespace canopy {

namespace {

constexpr std::size_t kBlock = 32;
constexpr std::size_t kLanes = 8;  // sums in this many parts, which compilers vectorise
using Block = std::span<const float, kBlock>;
using Codes = std::array<float, kBlock>;  // whole numbers; floats, for the vector units

/// What f16 makes of a scale.
float as_f16(float value) {
  const float rounded = f32_from_f16(f16_from_f32(value));
  if (!std::isfinite(rounded)) throw Error("a block's scale exceeds the range of f16");
  return rounded;
}

template <class Term>
float sum(Term term) {
  std::array<float, kLanes> part{};
  for (std::size_t i = 0; i < kBlock; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) part[lane] += term(i + lane);
  float total = 0;
  for (const float p : part) total += p;
  return total;
}

/// x ~ scale code + minimum, codes being whole numbers in [least, most].
struct Fit {
  float scale = 0, minimum = 0;
  Codes codes{};
  float error = std::numeric_limits<float>::infinity();  // squared
};

Fit fit(Block x, float scale, float minimum, float least, float most) {
  Fit result{.scale = as_f16(scale), .minimum = as_f16(minimum)};
  const float inverse = result.scale == 0 ? 0 : 1 / result.scale;
  if (!std::isfinite(inverse)) return result;
  for (std::size_t i = 0; i < kBlock; ++i)
    result.codes[i] =
        std::min(std::max(std::nearbyint((x[i] - result.minimum) * inverse), least), most);
  result.error = sum([&](std::size_t i) {
    const float miss = x[i] - (result.scale * result.codes[i] + result.minimum);
    return miss * miss;
  });
  return result;
}

void keep_better(Fit& best, const Fit& other) {
  if (other.error < best.error) best = other;
}

constexpr float kLeast4 = -8, kMost4 = 7;  // Q4_0 stores code + 8

/// x ~ d c: the scale that puts the value of largest magnitude at -8, and neighbours of it for both
/// signs, each refitted: d = sum x c / sum c c.
Fit fit_q4_0(Block x) {
  float extreme = 0;
  for (const float value : x)
    if (std::abs(value) > std::abs(extreme)) extreme = value;
  Fit best = fit(x, extreme / kLeast4, 0, kLeast4, kMost4);
  if (extreme == 0) return best;
  for (const float sign : {-1.0f, 1.0f}) {
    for (int step = 0; step < 10; ++step) {
      const float reach = 5.0f + 0.4f * static_cast<float>(step);  // 5 to 8.6 steps of d
      const Fit tried = fit(x, sign * extreme / reach, 0, kLeast4, kMost4);
      keep_better(best, tried);
      const float square = sum([&](std::size_t i) { return tried.codes[i] * tried.codes[i]; });
      const float product = sum([&](std::size_t i) { return x[i] * tried.codes[i]; });
      if (square > 0) keep_better(best, fit(x, product / square, 0, kLeast4, kMost4));
    }
  }
  return best;
}

constexpr float kMost4Unsigned = 15;

/// x ~ d c + m: the plain range, and ranges cut at both ends, each refitted by linear regression.
Fit fit_q4_1(Block x) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float least = *low, range = *high - *low;
  Fit best = fit(x, range / kMost4Unsigned, least, 0, kMost4Unsigned);
  if (range == 0) return best;
  const float mean = sum([&](std::size_t i) { return x[i]; }) / kBlock;
  for (int cut_low = 0; cut_low < 5; ++cut_low) {
    for (int cut_high = 0; cut_high < 5; ++cut_high) {
      const float from = 0.06f * static_cast<float>(cut_low) * range,
                  until = range - 0.06f * static_cast<float>(cut_high) * range;
      const Fit tried = fit(x, (until - from) / kMost4Unsigned, least + from, 0, kMost4Unsigned);
      keep_better(best, tried);
      const float mean_code = sum([&](std::size_t i) { return tried.codes[i]; }) / kBlock;
      const float square = sum([&](std::size_t i) {
        return (tried.codes[i] - mean_code) * (tried.codes[i] - mean_code);
      });
      const float product =
          sum([&](std::size_t i) { return (tried.codes[i] - mean_code) * (x[i] - mean); });
      if (square <= 0) continue;
      const float scale = product / square;
      keep_better(best, fit(x, scale, mean - scale * mean_code, 0, kMost4Unsigned));
    }
  }
  return best;
}

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
  const Fit best = fit_q4_0(x);
  store_f16(best.scale, out);
  store_nibbles(best.codes, -kLeast4, out + format::Q4_0::kCodesAt);
}
void quantize_block(format::Q4_1, Block x, std::byte* out) {
  const Fit best = fit_q4_1(x);
  store_f16(best.scale, out);
  store_f16(best.minimum, out + 2);
  store_nibbles(best.codes, 0, out + format::Q4_1::kCodesAt);
}
void quantize_block(format::Q8_0, Block x, std::byte* out) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  const Fit plain = fit(x, largest / 127, 0, -127, 127);
  store_f16(plain.scale, out);
  for (std::size_t i = 0; i < kBlock; ++i)
    out[format::Q8_0::kCodesAt + i] =
        static_cast<std::byte>(static_cast<std::int8_t>(plain.codes[i]));
}

}  // namespace

using WrittenFormats = format::List<format::Q4_0, format::Q4_1, format::Q8_0>;

void quantize_row(DType type, std::span<const float> row, std::span<std::byte> out) {
  require(out.size() == row_bytes(type, static_cast<std::int64_t>(row.size())),
          "quantize_row: the output is not the size of the row");
  visit_format(WrittenFormats(), type, [&]<class Format>(Format to) {
    static_assert(Format::kBlockElements == kBlock);
    for (std::size_t b = 0; b < row.size() / kBlock; ++b)
      quantize_block(to, row.subspan(b * kBlock).first<kBlock>(),
                     out.data() + b * Format::kBlockBytes);
  });
}

}  // namespace canopy
