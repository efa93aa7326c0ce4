#include "src/speculation/growers/chain_grower.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/speculation/logits/draw_row.h"

namespace canopy {

namespace {

constexpr double kFading = 1 - 1.0 / 256;  // of a token's weight, with each that follows it

std::size_t bin_of(double confidence) {
  constexpr auto kBins = static_cast<double>(ConfidenceTracker::kBins);
  return static_cast<std::size_t>(std::clamp(confidence * kBins, 0.0, kBins - 1));
}

}  // namespace

void ConfidenceTracker::observe(double confidence, bool accepted) {
  Bin& bin = bins_[bin_of(confidence)];
  bin.asked = kFading * bin.asked + 1;
  bin.accepted = kFading * bin.accepted + (accepted ? 1 : 0);
  expected_ = kFading * expected_ + (1 - confidence);
  refused_ = kFading * refused_ + (accepted ? 0 : 1);
}

double ConfidenceTracker::acceptance(double confidence) const {
  const Bin& bin = bins_[bin_of(confidence)];
  const double ratio = (refused_ + kRefused) / (expected_ + kRefused);
  const double of_all = std::clamp(1 - (1 - confidence) * ratio, 0.0, 1.0);
  return (bin.accepted + kBefore * of_all) / (bin.asked + kBefore);
}

ChainGrower::ChainGrower(TokenId root, Limits limits, const ConfidenceTracker& tracker,
                         std::optional<StepRng> rng)
    : limits_(limits), tracker_(tracker), rng_(rng), tree_(root), run_{0} {}

std::vector<DraftedNode> ChainGrower::take(std::span<const DraftedRow> rows) {
  require(rows.size() == 1, "draft: a chain is run a token at a time");
  const std::span<const float> drawn = rows.front().drawn, judged = rows.front().judged;
  const NodeId last = tree_.size() - 1;
  run_.back() = last;  // it was run: its row is here
  const double confidence = *std::max_element(judged.begin(), judged.end());
  reach_ *= tracker_.acceptance(confidence);
  const double sure = limits_.kind == Growth::Kind::kConfidence ? confidence : reach_;
  if (last >= limits_.longest || sure < limits_.bound) return {};
  const TokenId token = drawn_token(drawn, rng_, last);
  tree_.add_children(last, {&token, 1});
  run_.push_back(-1);
  confidences_.push_back(confidence);
  if (last + 1 == limits_.longest) return {};
  return {{token, last}};
}

void observe(ConfidenceTracker& tracker, std::span<const double> confidences,
             const Verdict& verdict) {
  const std::size_t accepted = verdict.path.size() - 1;
  for (std::size_t i = 0; i < std::min(accepted + 1, confidences.size()); ++i)
    tracker.observe(confidences[i], i < accepted);
}

}  // namespace canopy
