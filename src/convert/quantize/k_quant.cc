#include "src/convert/quantize/k_quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "src/convert/quantize/block_fit.h"

namespace canopy {

namespace {

constexpr std::size_t kBlock = 256;
constexpr float kMostF16 = 65504;
using Block = std::span<const float, kBlock>;

/// Ranges of the codes, the scales and the minima of a format's groups.
struct Ranges {
  CodeRange codes, scales, minima;
};

/// x ~ d s q + m t: d and m of the block, whole numbers s and t of a group of N weights, its codes
/// q.
template <std::size_t N>
struct Groups {
  static constexpr std::size_t kCount = kBlock / N;
  float d = 0, m = 0;
  std::array<float, kCount> s{}, t{};
  std::array<Fit<N>, kCount> fits;
  float error = std::numeric_limits<float>::infinity();
};

template <std::size_t N>
std::span<const float, N> group(Block x, std::size_t g) {
  return std::span<const float, N>(x.data() + g * N, N);
}

float nearest(float wanted, float unit, CodeRange range) {
  const float ratio = unit == 0 ? 0 : wanted / unit;
  return std::min(std::max(std::nearbyint(ratio), range.least), range.most);
}

/// Takes for each group the best of the scales and minima next to its line, with this d and m.
template <std::size_t N>
Groups<N> choose(Block x, const std::array<Line, kBlock / N>& lines, Line block,
                 const Ranges& ranges) {
  Groups<N> best;
  best.d = block.scale, best.m = block.minimum;
  best.error = 0;
  for (std::size_t g = 0; g < Groups<N>::kCount; ++g) {
    const float s0 = nearest(lines[g].scale, best.d, ranges.scales),
                t0 = nearest(lines[g].minimum, best.m, ranges.minima);
    Fit<N> kept;
    for (float s = std::max(s0 - 1, ranges.scales.least); s <= std::min(s0 + 1, ranges.scales.most);
         ++s)
      for (float t = std::max(t0 - 1, ranges.minima.least);
           t <= std::min(t0 + 1, ranges.minima.most); ++t) {
        const Fit<N> tried = fit<N>(group<N>(x, g), {best.d * s, best.m * t}, ranges.codes);
        if (tried.error >= kept.error) continue;
        kept = tried;
        best.s[g] = s, best.t[g] = t;
      }
    best.fits[g] = kept;
    best.error += kept.error;
  }
  return best;
}

/// The d and m of least squared error for these whole numbers.
template <std::size_t N>
Line refit(Block x, const Groups<N>& groups) {
  double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const std::size_t g = i / N;
    const double a = static_cast<double>(groups.s[g] * groups.fits[g].codes[i % N]),
                 b = static_cast<double>(groups.t[g]), value = static_cast<double>(x[i]);
    aa += a * a, ab += a * b, bb += b * b, xa += value * a, xb += value * b;
  }
  const double determinant = aa * bb - ab * ab;
  if (determinant > 0)
    return {static_cast<float>((xa * bb - xb * ab) / determinant),
            static_cast<float>((xb * aa - xa * ab) / determinant)};
  return {aa == 0 ? 0 : static_cast<float>(xa / aa), groups.m};
}

/// f16 of a scale, or the smallest that is not zero where f16 would lose it.
float stored(float value) {
  const float rounded = as_f16(value);
  return rounded == 0 && value != 0 ? std::copysign(0x1p-24f, value) : rounded;
}

/// A first guess, which knows the lines of the groups alone.
template <std::size_t N>
Groups<N> fit_groups(Block x, const std::array<Line, kBlock / N>& lines, const Ranges& ranges) {
  // The widest scale and the lowest minimum take the outermost numbers that there are.
  Line widest;
  for (const Line& line : lines) {
    if (std::abs(line.scale) > std::abs(widest.scale)) widest.scale = line.scale;
    widest.minimum = std::min(widest.minimum, line.minimum);
  }
  const float outermost =
      -ranges.scales.least > ranges.scales.most ? ranges.scales.least : ranges.scales.most;
  const float lowest = ranges.minima.least == 0 ? 1 : ranges.minima.least;
  Groups<N> best = choose<N>(
      x, lines, {stored(widest.scale / outermost), stored(widest.minimum / lowest)}, ranges);
  constexpr int kMostRounds = 4;  // after which the error of normal rows falls by less than 0.1 %
  for (int round = 0; round < kMostRounds; ++round) {
    const Line block = refit(x, best);
    // Two sums that are nearly proportional give numbers that mean nothing.
    if (!(std::abs(block.scale) <= kMostF16 && std::abs(block.minimum) <= kMostF16)) break;
    const Groups<N> next =
        choose<N>(x, lines, {stored(block.scale), stored(block.minimum)}, ranges);
    if (!(next.error < best.error)) break;
    best = next;
  }
  return best;
}

/// Lines of the groups, each fitted alone, with codes up to `most` and minima of at most zero.
template <std::size_t N>
std::array<Line, kBlock / N> lines_below_zero(Block x, float most) {
  std::array<Line, kBlock / N> lines;
  for (std::size_t g = 0; g < lines.size(); ++g) {
    const auto values = group<N>(x, g);
    const float low = std::min(0.0f, *std::min_element(values.begin(), values.end()));
    lines[g] = fit_line<N>(values, low, most, [](Line line) {
                 return Line{line.scale, std::min(line.minimum, 0.0f)};
               }).line;
  }
  return lines;
}

void store_f16(float value, std::byte* out) {
  const std::uint16_t bits = f16_from_f32(value);
  std::memcpy(out, &bits, sizeof bits);
}

template <std::size_t N>
unsigned code(const Groups<N>& groups, std::size_t i, float offset) {
  return static_cast<unsigned>(groups.fits[i / N].codes[i % N] + offset);
}

}  // namespace

void quantize_block(format::Q2_K, Block x, std::byte* out) {
  constexpr std::size_t kGroup = format::Q2_K::kGroupElements;
  const Groups<kGroup> best =
      fit_groups<kGroup>(x, lines_below_zero<kGroup>(x, 3), {{0, 3}, {0, 15}, {-15, 0}});
  store_f16(best.d, out + format::Q2_K::kScaleAt);
  store_f16(best.m, out + format::Q2_K::kMinimumAt);
  for (std::size_t g = 0; g < best.s.size(); ++g)
    out[g] = static_cast<std::byte>(static_cast<unsigned>(best.s[g]) |
                                    static_cast<unsigned>(-best.t[g]) << 4);
  for (std::size_t i = 0; i < kBlock / 4; ++i) {
    const std::size_t first = i / 32 * 128 + i % 32;
    unsigned four = 0;
    for (std::size_t j = 0; j < 4; ++j) four |= code(best, first + 32 * j, 0) << 2 * j;
    out[format::Q2_K::kCodesAt + i] = static_cast<std::byte>(four);
  }
}

void quantize_block(format::Q4_K, Block x, std::byte* out) {
  constexpr std::size_t kGroup = format::Q4_K::kGroupElements;
  const Groups<kGroup> best =
      fit_groups<kGroup>(x, lines_below_zero<kGroup>(x, 15), {{0, 15}, {0, 63}, {-63, 0}});
  store_f16(best.d, out + format::Q4_K::kScaleAt);
  store_f16(best.m, out + format::Q4_K::kMinimumAt);
  std::byte* const scales = out + format::Q4_K::kGroupsAt;
  for (std::size_t g = 0; g < 4; ++g) {
    const auto s = [&](std::size_t i) { return static_cast<unsigned>(best.s[i]); };
    const auto t = [&](std::size_t i) { return static_cast<unsigned>(-best.t[i]); };
    scales[g] = static_cast<std::byte>(s(g) | s(g + 4) >> 4 << 6);
    scales[g + 4] = static_cast<std::byte>(t(g) | t(g + 4) >> 4 << 6);
    scales[g + 8] = static_cast<std::byte>((s(g + 4) & 15) | (t(g + 4) & 15) << 4);
  }
  for (std::size_t i = 0; i < kBlock / 2; ++i) {
    const std::size_t low = i / 32 * 64 + i % 32;
    out[format::Q4_K::kCodesAt + i] =
        static_cast<std::byte>(code(best, low, 0) | code(best, low + 32, 0) << 4);
  }
}

void quantize_block(format::Q6_K, Block x, std::byte* out) {
  constexpr std::size_t kGroup = format::Q6_K::kGroupElements;
  std::array<Line, kBlock / kGroup> lines;
  for (std::size_t g = 0; g < lines.size(); ++g)  // 26 to 32.3 steps to the largest magnitude
    lines[g] = fit_scale<kGroup>(group<kGroup>(x, g), {-32, 31}, {26, 0.7f}, [](float scale) {
                 return scale;
               }).line;
  const Groups<kGroup> best = fit_groups<kGroup>(x, lines, {{-32, 31}, {-128, 127}, {0, 0}});
  store_f16(best.d, out + format::Q6_K::kScaleAt);
  for (std::size_t g = 0; g < lines.size(); ++g)
    out[format::Q6_K::kGroupsAt + g] = static_cast<std::byte>(static_cast<std::int8_t>(best.s[g]));
  const auto at = [&](std::size_t i) { return code(best, i, 32); };
  for (std::size_t half = 0; half < 2; ++half)
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t first = half * 128 + i;
      std::byte* const low = out + format::Q6_K::kCodesAt + half * 64 + i;
      low[0] = static_cast<std::byte>((at(first) & 15) | (at(first + 64) & 15) << 4);
      low[32] = static_cast<std::byte>((at(first + 32) & 15) | (at(first + 96) & 15) << 4);
      out[format::Q6_K::kHighAt + half * 32 + i] =
          static_cast<std::byte>(at(first) >> 4 | at(first + 32) >> 4 << 2 |
                                 at(first + 64) >> 4 << 4 | at(first + 96) >> 4 << 6);
    }
}

}  // namespace canopy
