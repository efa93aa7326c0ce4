#pragma once
// Fit of a scale, a minimum and whole codes to values, with the least squared error. Private to the
// quantiser.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "src/base/error.h"
#include "src/base/formats/half.h"

namespace canopy {

/// Rounds a scale to f16. Throws Error if it is too large.
inline float as_f16(float value) {
  const float rounded = f32_from_f16(f16_from_f32(value));
  if (!std::isfinite(rounded)) throw Error("a block's scale exceeds the range of f16");
  return rounded;
}

/// Sums over N values in parts, which compilers vectorise.
template <std::size_t N, class Term>
float sum(Term term) {
  constexpr std::size_t kLanes = 8;
  static_assert(N % kLanes == 0);
  std::array<float, kLanes> part{};
  for (std::size_t i = 0; i < N; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) part[lane] += term(i + lane);
  float total = 0;
  for (const float p : part) total += p;
  return total;
}

/// x ~ scale code + minimum.
struct Line {
  float scale = 0, minimum = 0;
};
/// The whole numbers that codes may be.
struct CodeRange {
  float least, most;
};

/// The best codes of a line; whole numbers, as floats for the vector units.
template <std::size_t N>
struct Fit {
  Line line;
  std::array<float, N> codes{};
  float error = std::numeric_limits<float>::infinity();  // squared
};

template <std::size_t N>
Fit<N> fit(std::span<const float, N> x, Line line, CodeRange range) {
  Fit<N> result{.line = line};
  const float inverse = line.scale == 0 ? 0 : 1 / line.scale;
  if (!std::isfinite(inverse)) return result;
  for (std::size_t i = 0; i < N; ++i)
    result.codes[i] = std::min(
        std::max(std::nearbyint((x[i] - line.minimum) * inverse), range.least), range.most);
  result.error = sum<N>([&](std::size_t i) {
    const float miss = x[i] - (line.scale * result.codes[i] + line.minimum);
    return miss * miss;
  });
  return result;
}

template <std::size_t N>
void keep_better(Fit<N>& best, const Fit<N>& other) {
  if (other.error < best.error) best = other;
}

/// x ~ d c without a minimum: the scale that puts the value of largest magnitude at the least code,
/// which lies further out than the most, and 20 more that put it at `reaches` steps or near, for
/// both signs, each refitted: d = sum x c / sum c c. round(scale): what can be stored of it.
struct Reaches {
  float first, step;
};
template <std::size_t N, class Round>
Fit<N> fit_scale(std::span<const float, N> x, CodeRange range, Reaches reaches,
                 const Round& round) {
  float extreme = 0;
  for (const float value : x)
    if (std::abs(value) > std::abs(extreme)) extreme = value;
  Fit<N> best = fit<N>(x, {round(extreme / range.least)}, range);
  if (extreme == 0) return best;
  for (const float sign : {-1.0f, 1.0f}) {
    for (int i = 0; i < 10; ++i) {
      const float reach = reaches.first + reaches.step * static_cast<float>(i);
      const Fit<N> tried = fit<N>(x, {round(sign * extreme / reach)}, range);
      keep_better(best, tried);
      const float square = sum<N>([&](std::size_t k) { return tried.codes[k] * tried.codes[k]; });
      const float product = sum<N>([&](std::size_t k) { return x[k] * tried.codes[k]; });
      if (square > 0) keep_better(best, fit<N>(x, {round(product / square)}, range));
    }
  }
  return best;
}

/// x ~ d c + m, c from 0 on: the range from `low` to the largest of x, and ranges cut at both ends,
/// each refitted by linear regression. round(line): what can be stored of it.
template <std::size_t N, class Round>
Fit<N> fit_line(std::span<const float, N> x, float low, float most, const Round& round) {
  const float range = *std::max_element(x.begin(), x.end()) - low;
  const CodeRange codes{0, most};
  Fit<N> best = fit<N>(x, round(Line{range / most, low}), codes);
  if (range == 0) return best;
  const float mean = sum<N>([&](std::size_t i) { return x[i]; }) / N;
  for (int cut_low = 0; cut_low < 5; ++cut_low) {
    for (int cut_high = 0; cut_high < 5; ++cut_high) {
      const float from = 0.06f * static_cast<float>(cut_low) * range,
                  until = range - 0.06f * static_cast<float>(cut_high) * range;
      const Fit<N> tried = fit<N>(x, round(Line{(until - from) / most, low + from}), codes);
      keep_better(best, tried);
      const float mean_code = sum<N>([&](std::size_t i) { return tried.codes[i]; }) / N;
      const float square = sum<N>([&](std::size_t i) {
        return (tried.codes[i] - mean_code) * (tried.codes[i] - mean_code);
      });
      const float product =
          sum<N>([&](std::size_t i) { return (tried.codes[i] - mean_code) * (x[i] - mean); });
      if (square <= 0) continue;
      const float scale = product / square;
      keep_better(best, fit<N>(x, round(Line{scale, mean - scale * mean_code}), codes));
    }
  }
  return best;
}

}  // namespace canopy
