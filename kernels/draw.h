#pragma once
// Drawing tokens from a row of probabilities by inverse CDF over sums of parts of the row: one text
// for all backends, so that they draw the same tokens from the same row, bit for bit.
#include <cstddef>

namespace canopy {

inline constexpr std::size_t kDrawPart = 256;  // tokens that are summed as one
constexpr std::size_t draw_parts(std::size_t vocab) { return (vocab + kDrawPart - 1) / kDrawPart; }
/// The sums of the parts, those before each, and that of all.
constexpr std::size_t draw_sums(std::size_t vocab) { return 2 * draw_parts(vocab) + 1; }

/// Sum of left(i) over [first, end): eight partial sums, so that the order is fixed and still fast.
/// `left` gives what may still be drawn of token i: its probability, 0, or less than 0 once drawn.
template <class Left>
constexpr double draw_part_sum(const Left& left, std::size_t first, std::size_t end) {
  double lanes[8] = {};
  const auto add = [&](std::size_t lane, float q) {
    lanes[lane] += q > 0 ? static_cast<double>(q) : 0;
  };
  std::size_t i = first;
  for (; i + 8 <= end; i += 8)
    for (std::size_t l = 0; l < 8; ++l) add(l, left(i + l));
  for (std::size_t l = 0; l < 8; ++l)
    if (i + l < end) add(l, left(i + l));
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/// Values that are read before they are added in their order, so that sums alone wait for sums.
inline constexpr std::size_t kDrawRun = 8;

/// Sums of the parts before each part, in their order, of parts [first, count); before[count] is
/// that of all. What is before `first` stands there already; before[0] is 0.
constexpr void sum_before(const double* parts, std::size_t first, std::size_t count,
                          double* before) {
  double sum = before[first];
  std::size_t part = first;
  for (; part + kDrawRun <= count; part += kDrawRun) {
    double run[kDrawRun] = {};
    for (std::size_t i = 0; i < kDrawRun; ++i) run[i] = parts[part + i];
    for (std::size_t i = 0; i < kDrawRun; ++i) before[part + i + 1] = sum += run[i];
  }
  for (; part < count; ++part) before[part + 1] = sum += parts[part];
}

/// Place where a draw looks for its token: the part, the sum of all parts before it, and the sum
/// that the token's own must be the first to exceed.
struct DrawPlace {
  std::size_t part;
  double below, target;
};
/// True of one part, the first whose sum with those before it exceeds the target, or else the last:
/// sums of what is not negative never fall.
constexpr bool falls_into(const double* before, std::size_t part, std::size_t count,
                          double target) {
  return (part + 1 == count || !(before[part + 1] <= target)) &&
         (part == 0 || before[part] <= target);
}
/// The place of u times the total of `count` parts.
constexpr DrawPlace draw_place(const double* before, std::size_t count, double u) {
  const double target = u * before[count];
  std::size_t part = 0;
  while (!falls_into(before, part, count, target)) ++part;
  return {part, before[part], target};
}

/// The token of [first, end) where the running sum first exceeds the place's target, or else the
/// last that is left; `none` if none is. [first, end) is the place's part.
template <class Left>
constexpr std::size_t draw_within(const Left& left, std::size_t first, std::size_t end,
                                  const DrawPlace& place, std::size_t none) {
  const auto add = [&](double sum, std::size_t i) {
    const float q = left(i);
    return sum + (q > 0 ? static_cast<double>(q) : 0);
  };
  double below = place.below;  // not above the target
  std::size_t i = first;
  for (; i + kDrawRun <= end; i += kDrawRun) {
    double sum = below;
    for (std::size_t l = 0; l < kDrawRun; ++l) sum = add(sum, i + l);
    if (sum > place.target) break;
    below = sum;
  }
  for (; i < end; ++i) {
    below = add(below, i);
    if (below > place.target) return i;
  }
  for (i = end; i-- > first;)
    if (left(i) > 0) return i;
  return none;
}

/// Finds, where a walk ran into a part without support, which begins at `first`, the nearest token
/// of n that has some; n if none has.
template <class Left>
constexpr std::size_t draw_nearest(const Left& left, std::size_t first, std::size_t n) {
  for (std::size_t i = first; i-- > 0;)
    if (left(i) > 0) return i;
  for (std::size_t i = first; i < n; ++i)
    if (left(i) > 0) return i;
  return n;
}

/// The token where the running sum of what is left first exceeds u times its total; n if no token
/// is left. Support is judged by tokens: rounding can end the walk early, never on a zero.
template <class Left>
constexpr std::size_t draw_token(const Left& left, std::size_t n, const double* before, double u) {
  const DrawPlace place = draw_place(before, draw_parts(n), u);
  const std::size_t first = place.part * kDrawPart;
  const std::size_t end = n < first + kDrawPart ? n : first + kDrawPart;
  const std::size_t token = draw_within(left, first, end, place, n);
  return token < n ? token : draw_nearest(left, first, n);
}

/// Draws where the support is used up: uniform over the `undrawn` tokens that were not drawn yet.
template <class Left>
constexpr std::size_t draw_any(const Left& left, std::size_t undrawn, double u) {
  auto skip = static_cast<std::size_t>(u * static_cast<double>(undrawn));
  if (skip > undrawn - 1) skip = undrawn - 1;
  std::size_t token = 0;
  while (left(token) < 0 || skip-- > 0) ++token;
  return token;
}

}  // namespace canopy
