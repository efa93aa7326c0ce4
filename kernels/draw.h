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
  for (; i < end; ++i) add((i - first) % 8, left(i));
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

/// The token where the running sum of what is left first exceeds u times its total; n if no token
/// is left. Support is judged by tokens: rounding can end the walk early, never on a zero.
template <class Left>
constexpr std::size_t draw_token(const Left& left, std::size_t n, const double* parts, double u) {
  const std::size_t count = draw_parts(n);
  double total = 0;
  for (std::size_t part = 0; part < count; ++part) total += parts[part];
  const double target = u * total;
  double below = 0;
  std::size_t part = 0;
  while (part + 1 < count && below + parts[part] <= target) below += parts[part++];
  const std::size_t end = n < (part + 1) * kDrawPart ? n : (part + 1) * kDrawPart;
  std::size_t last = n;
  for (std::size_t i = part * kDrawPart; i < end; ++i) {
    if (!(left(i) > 0)) continue;
    last = i;
    below += static_cast<double>(left(i));
    if (below > target) return i;
  }
  if (last < n) return last;
  // The walk ran into a part without support: take the nearest token that has some.
  for (std::size_t i = part * kDrawPart; i-- > 0;)
    if (left(i) > 0) return i;
  for (std::size_t i = part * kDrawPart; i < n; ++i)
    if (left(i) > 0) return i;
  return n;
}

/// Where the support is used up: uniform over the `undrawn` tokens that were not drawn yet.
template <class Left>
constexpr std::size_t draw_any(const Left& left, std::size_t undrawn, double u) {
  auto skip = static_cast<std::size_t>(u * static_cast<double>(undrawn));
  if (skip > undrawn - 1) skip = undrawn - 1;
  std::size_t token = 0;
  while (left(token) < 0 || skip-- > 0) ++token;
  return token;
}

}  // namespace canopy
