#include "offload/experts/expert_policy.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"

namespace canopy {

ExpertPolicy::ExpertPolicy(int experts, std::vector<int> quotas)
    : count_(static_cast<std::size_t>(experts)),
      quotas_(std::move(quotas)),
      experts_(count_ * quotas_.size()) {}

ExpertPolicy::Step ExpertPolicy::ask(std::size_t layer, std::span<const ExpertDemand> wanted) {
  Step step;
  ++asks_;
  std::vector<ExpertDemand> missed;
  for (const ExpertDemand& demand : wanted) {
    Expert& expert = at(layer, demand.expert);
    expert.asked = asks_;
    (expert.stays ? step.hits : step.misses).push_back(demand.expert);
    if (!expert.stays) missed.push_back(demand);
  }
  const auto quota = static_cast<std::size_t>(quotas_[layer]);
  std::stable_sort(missed.begin(), missed.end(),
                   [](const auto& a, const auto& b) { return a.rows > b.rows; });
  if (missed.size() > quota - step.hits.size()) missed.resize(quota - step.hits.size());

  std::vector<std::int32_t> others = staying(layer);
  std::erase_if(others, [&](std::int32_t e) { return at(layer, e).asked == asks_; });
  while (!others.empty() && others.size() + step.hits.size() + missed.size() > quota) {
    at(layer, others.back()).stays = false;
    step.leaving.push_back(others.back());
    others.pop_back();
  }
  for (const ExpertDemand& demand : missed) at(layer, demand.expert).stays = true;
  return step;
}

std::vector<std::int32_t> ExpertPolicy::set_quota(std::size_t layer, int quota) {
  quotas_[layer] = quota;
  std::vector<std::int32_t> leaving;
  for (std::vector<std::int32_t> all = staying(layer); std::ssize(all) > quota; all.pop_back()) {
    at(layer, all.back()).stays = false;
    leaving.push_back(all.back());
  }
  return leaving;
}

std::vector<std::int32_t> ExpertPolicy::staying(std::size_t layer) const {
  std::vector<std::int32_t> all;
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(count_); ++e)
    if (at(layer, e).stays) all.push_back(e);
  std::stable_sort(all.begin(), all.end(), [&](std::int32_t a, std::int32_t b) {
    const Expert &x = at(layer, a), &y = at(layer, b);
    return x.frequency != y.frequency ? x.frequency > y.frequency : x.asked > y.asked;
  });
  return all;
}

void ExpertPolicy::credit(std::size_t layer, std::span<const std::int32_t> chosen) {
  static const double kept = std::exp2(-1 / kHalfLife);
  for (std::size_t e = 0; e < count_; ++e) experts_[layer * count_ + e].frequency *= kept;
  for (const std::int32_t e : chosen)
    if (e >= 0) at(layer, e).frequency += 1;
}

std::vector<int> share_slots(std::size_t slots, std::size_t layers, int experts) {
  std::vector<int> shares(layers);
  for (std::size_t i = 0; i < layers; ++i)
    shares[i] = static_cast<int>(std::min<std::size_t>(
        static_cast<std::size_t>(experts), slots / layers + (i < slots % layers ? 1 : 0)));
  return shares;
}

}  // namespace canopy
