#include "planner/acceptance_tracker.h"

#include <algorithm>
#include <cstddef>

#include "src/base/error.h"

namespace canopy {

namespace {

constexpr double kBefore = 48;             // nodes that the first vector counts for
constexpr double kFading = 1 - 1.0 / 256;  // of the weight of a node, with each that follows

}  // namespace

AcceptanceTracker::AcceptanceTracker(const Acceptance& before) {
  for (std::size_t level = 0; level <= before.deeper.size(); ++level) {
    levels_.emplace_back();
    for (const double p : before.below(static_cast<int>(level)))
      levels_.back().push_back({p * kBefore, kBefore});
  }
}

void AcceptanceTracker::observe(int level, int children, int accepted) {
  require(accepted >= -1 && accepted < children, "acceptance: no such child");
  std::vector<Rank>& ranks = levels_[std::min(static_cast<std::size_t>(level), levels_.size() - 1)];
  const auto asked = std::min(static_cast<std::size_t>(children), ranks.size());
  for (std::size_t k = 0; k < asked; ++k) {
    ranks[k].asked = kFading * ranks[k].asked + 1;
    ranks[k].accepted = kFading * ranks[k].accepted + (static_cast<int>(k) == accepted ? 1 : 0);
  }
}

Acceptance AcceptanceTracker::estimate() const {
  Acceptance estimate;
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    std::vector<double>& accept = level == 0 ? estimate.accept : estimate.deeper.emplace_back();
    double left = 1;  // ranks were asked at different nodes: their shares need not fit together
    for (const Rank& rank : levels_[level]) {
      accept.push_back(std::min(rank.accepted / rank.asked, left));
      left -= accept.back();
    }
  }
  return estimate;
}

void AcceptanceTracker::fade_to(double nodes) {
  for (std::vector<Rank>& ranks : levels_)
    for (Rank& rank : ranks) {
      const double share = std::min(1.0, nodes / rank.asked);
      rank.accepted *= share;
      rank.asked *= share;
    }
}

}  // namespace canopy
