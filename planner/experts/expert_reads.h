#pragma once
#include <cstdint>

namespace canopy {

/// Difference of texts' routes from those that ExpertReads' table was measured on. Plain data.
struct RouteHabits {
  double odds = 1;    // of a row to find its experts among as many that stay, times the table's
  double growth = 0;  // added to the table's g

  static constexpr double kMostOdds = 256, kMostGrowth = 1;  // either way
};

/// Experts of a mixture that sweeps read when rows choose them. Plain data.
struct ExpertReads {
  int layers = 0, count = 0, active = 0;  // mixture layers, experts of each, of a row
  std::uint64_t bytes = 0;                // of one; 0: no expert is read on demand
  int stay = 0;                           // of all layers' experts, in memory
  RouteHabits habits{};

  /// Share of its experts that a row of plain decoding is expected to find in memory, and g.
  double hits() const;
  double growth() const;
  /// Experts that a sweep of `rows` rows of text is expected to read: those of one row less what
  /// stays, times rows^g, and no more than there are. How often a row finds its experts and how g
  /// grows with their share is measured on routes of Qwen3-30B (docs/math.md, "What experts cost").
  double misses(double rows) const;
  std::uint64_t bytes_of(double rows) const {
    return static_cast<std::uint64_t>(misses(rows) * static_cast<double>(bytes));
  }
  int absent() const { return layers * count - stay; }
};

}  // namespace canopy
