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
  for (const double p : before.accept) ranks_.push_back({p * kBefore, kBefore});
}

void AcceptanceTracker::observe(int children, int accepted) {
  require(accepted >= -1 && accepted < children, "acceptance: no such child");
  const auto asked = std::min(static_cast<std::size_t>(children), ranks_.size());
  for (std::size_t k = 0; k < asked; ++k) {
    ranks_[k].asked = kFading * ranks_[k].asked + 1;
    ranks_[k].accepted = kFading * ranks_[k].accepted + (static_cast<int>(k) == accepted ? 1 : 0);
  }
}

Acceptance AcceptanceTracker::estimate() const {
  Acceptance estimate;
  double left = 1;  // ranks were asked at different nodes: their shares need not fit together
  for (const Rank& rank : ranks_) {
    estimate.accept.push_back(std::min(rank.accepted / rank.asked, left));
    left -= estimate.accept.back();
  }
  return estimate;
}

void AcceptanceTracker::fade_to(double nodes) {
  for (Rank& rank : ranks_) {
    const double share = std::min(1.0, nodes / rank.asked);
    rank.accepted *= share;
    rank.asked *= share;
  }
}

}  // namespace canopy
