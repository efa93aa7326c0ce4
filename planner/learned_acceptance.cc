#include "planner/learned_acceptance.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/acceptance_file.h"
#include "src/base/error.h"
#include "src/base/json.h"

namespace canopy {

namespace {

constexpr const char* kVersionKey = "canopy_learned_acceptance";
constexpr int kVersion = 1;
constexpr std::size_t kMostRanks = 1024;  // children of a node of the largest tree

}  // namespace

void LearnedAcceptance::observe(int children, int accepted) {
  require(accepted >= -1 && accepted < children, "acceptance: no such child");
  const auto count = std::min(static_cast<std::size_t>(children), kMostRanks);
  if (ranks_.size() < count) ranks_.resize(count);
  for (std::size_t k = 0; k < count; ++k) {
    ranks_[k].asked += 1;
    if (static_cast<int>(k) == accepted) ranks_[k].accepted += 1;
  }
}

double LearnedAcceptance::nodes() const { return ranks_.empty() ? 0 : ranks_.front().asked; }

void LearnedAcceptance::add(const LearnedAcceptance& later) {
  if (ranks_.size() < later.ranks_.size()) ranks_.resize(later.ranks_.size());
  for (std::size_t k = 0; k < ranks_.size(); ++k) {
    const Rank more = k < later.ranks_.size() ? later.ranks_[k] : Rank();
    Rank& rank = ranks_[k];
    const double keep =
        rank.asked > 0 ? std::clamp((kMostNodes - more.asked) / rank.asked, 0.0, 1.0) : 1.0;
    rank.asked = keep * rank.asked + more.asked;
    rank.accepted = keep * rank.accepted + more.accepted;
  }
}

Acceptance LearnedAcceptance::estimate(const Acceptance& before) const {
  Acceptance estimate;
  double left = 1;  // ranks were asked at different nodes: their shares need not fit together
  for (std::size_t k = 0; k < std::max(before.accept.size(), ranks_.size()); ++k) {
    const double prior = k < before.accept.size() ? before.accept[k] : 0.0;
    const Rank rank = k < ranks_.size() ? ranks_[k] : Rank();
    const double share = (rank.accepted + kBefore * prior) / (rank.asked + kBefore);
    estimate.accept.push_back(std::min(share, left));
    left -= estimate.accept.back();
  }
  return estimate;
}

std::string LearnedAcceptance::to_json() const {
  std::vector<double> asked, accepted;
  for (const Rank& rank : ranks_) asked.push_back(rank.asked), accepted.push_back(rank.accepted);
  return nlohmann::ordered_json{{kVersionKey, kVersion}, {"asked", asked}, {"accepted", accepted}}
             .dump() +
         "\n";
}

LearnedAcceptance LearnedAcceptance::from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  const auto numbers = [&](const char* key) {
    const auto found = json.find(key);
    std::vector<double> values;
    bool good = found != json.end() && found->is_array() && found->size() <= kMostRanks;
    for (std::size_t i = 0; good && i < found->size(); ++i) {
      const nlohmann::json& value = (*found)[i];
      good = value.is_number() && value.get<double>() >= 0 && value.get<double>() <= 2 * kMostNodes;
      if (good) values.push_back(value.get<double>());
    }
    if (!good) throw Error(std::string("\"") + key + "\" must be a list of numbers of nodes");
    return values;
  };
  if (!json.is_object() || json.value(kVersionKey, nlohmann::json()) != kVersion)
    throw Error("this is not what texts taught about acceptance, or of another version");
  const std::vector<double> asked = numbers("asked"), accepted = numbers("accepted");
  if (asked.size() != accepted.size()) throw Error("\"accepted\" must be as long as \"asked\"");
  LearnedAcceptance learned;
  for (std::size_t k = 0; k < asked.size(); ++k) {
    if (accepted[k] > asked[k]) throw Error("more children were accepted than asked for");
    learned.ranks_.push_back({asked[k], accepted[k]});
  }
  return learned;
}

std::string learned_file_name(const std::string& target, const std::string& draft,
                              std::string_view drawing, const Sampling& sampling) {
  // The sampling as the measurement's name has it.
  std::string name = acceptance_file_name(target, draft, sampling);
  const std::string measured = "acceptance-";
  return "learned-" + std::string(drawing) + "-" + name.substr(measured.size());
}

}  // namespace canopy
