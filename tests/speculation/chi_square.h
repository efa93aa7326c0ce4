#pragma once
#include <cmath>
#include <map>

namespace canopy::testing {

/// Returns true if counts fit a distribution: Pearson's statistic is below the 99.9 % point of its
/// chi-square law, by Wilson and Hilferty's cube-root approximation. Cells expected fewer than 8
/// times are pooled; an outcome of probability 0 never fits.
template <class Outcome>
bool fits(const std::map<Outcome, int>& counts, const std::map<Outcome, double>& distribution) {
  double total = 0, statistic = 0, rare_expected = 0, rare_seen = 0;
  int cells = 0;
  for (const auto& [outcome, count] : counts) {
    total += count;
    const auto known = distribution.find(outcome);
    if (known == distribution.end() || !(known->second > 0)) return false;
  }
  const auto add = [&](double expected, double seen) {
    statistic += (seen - expected) * (seen - expected) / expected;
    ++cells;
  };
  for (const auto& [outcome, chance] : distribution) {
    const auto found = counts.find(outcome);
    const double seen = found == counts.end() ? 0 : found->second, expected = chance * total;
    if (expected < 8)
      rare_expected += expected, rare_seen += seen;
    else
      add(expected, seen);
  }
  if (rare_expected >= 8) add(rare_expected, rare_seen);
  if (cells < 2) return cells == 1;
  const double degrees = cells - 1, spread = 2 / (9 * degrees);
  return statistic < degrees * std::pow(1 - spread + 3.0902 * std::sqrt(spread), 3);
}

}  // namespace canopy::testing
