#include "planner/experts/expert_reads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>

namespace canopy {

namespace {

/// Measured at shares of experts that stay, between which lies a line.
struct At {
  double share, value;
};
constexpr std::array kHits{At{0, 0},     At{.03, .24}, At{.05, .38}, At{.08, .53}, At{.125, .65},
                           At{.20, .77}, At{.30, .86}, At{.40, .91}, At{1, 1}};
constexpr std::array kGrowth{At{0, .68}, At{.10, .84}, At{.20, .90}, At{.40, .94}, At{1, 1}};

double at_share(std::span<const At> points, double share) {
  const auto above = std::find_if(points.begin() + 1, points.end() - 1,
                                  [&](const At& point) { return point.share >= share; });
  const At &a = *std::prev(above), &b = *above;
  return a.value + (b.value - a.value) * (share - a.share) / (b.share - a.share);
}

/// Share of all experts that stay.
double share(const ExpertReads& reads) {
  return std::min(1.0, reads.stay / (double{1} * reads.layers * reads.count));
}

}  // namespace

double ExpertReads::hits() const {
  const double table = at_share(kHits, share(*this));
  return habits.odds * table / (1 - table + habits.odds * table);
}

double ExpertReads::growth() const {
  return std::clamp(at_share(kGrowth, share(*this)) + habits.growth, 0.0, 1.0);
}

double ExpertReads::misses(double rows) const {
  if (bytes == 0) return 0;
  const double one = double{1} * layers * active * (1 - hits());
  return std::min(one * std::pow(rows, growth()), double{1} * absent());
}

}  // namespace canopy
