#pragma once
// Drawing tokens from a row of probabilities by inverse CDF over sums of parts of the row: one text
// for all backends, so that they draw the same tokens from the same row, bit for bit.
#include <cstddef>

namespace canopy {

inline constexpr std::size_t kDrawPart = 256;  // tokens that are summed as one
constexpr std::size_t draw_parts(std::size_t vocab) { return (vocab + kDrawPart - 1) / kDrawPart; }

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

/// Place where a draw looks for its token: the part, the sum of all parts before it, and the sum
/// that the token's own must be the first to exceed.
struct DrawPlace {
  std::size_t part;
  double below, target;
};
/// The place of u times the total of `count` parts.
constexpr DrawPlace draw_place(const double* parts, std::size_t count, double u) {
  double total = 0;
  for (std::size_t part = 0; part < count; ++part) total += parts[part];
  DrawPlace place{0, 0, u * total};
  while (place.part + 1 < count && place.below + parts[place.part] <= place.target)
    place.below += parts[place.part++];
  return place;
}

/// The token of [first, end) where the running sum first exceeds the place's target, or else the
/// last that is left; `none` if none is. [first, end) is the place's part.
template <class Left>
constexpr std::size_t draw_within(const Left& left, std::size_t first, std::size_t end,
                                  const DrawPlace& place, std::size_t none) {
  double below = place.below;
  std::size_t last = none;
  for (std::size_t i = first; i < end; ++i) {
    if (!(left(i) > 0)) continue;
    last = i;
    below += static_cast<double>(left(i));
    if (below > place.target) return i;
  }
  return last;
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
constexpr std::size_t draw_token(const Left& left, std::size_t n, const double* parts, double u) {
  const DrawPlace place = draw_place(parts, draw_parts(n), u);
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
