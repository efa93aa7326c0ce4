#include "planner/calibrated/valued_trees.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace canopy {

namespace {

constexpr std::size_t kBins = std::tuple_size_v<decltype(ValuedSizes::bins)>;

std::size_t bin_of(int nodes) {
  const auto width = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(nodes)));
  return std::min(width - 2, kBins - 1);
}

/// The least gain of two pairs of models at this size or a larger one, of the study.
std::array<double, kBins> studied_gain(ChanceKind kind) {
  if (kind == ChanceKind::kGreedy) return {1, 1, 1.03, 1.07, 1.07, 1.14, 1.25, 1.25, 1.25, 1.25};
  return {1, 1, 1, 1.02, 1.02, 1.02, 1.02, 1.02, 1.02, 1.02};
}

}  // namespace

TreeRoom with_valued_rows(TreeRoom room, int texts) {
  const int rows = std::max(texts * valued_rows(1), (room.nodes + 15) / 16);
  room.widest = std::max(room.widest, rows);
  room.run = room.nodes + kSpareForwards * rows;
  return room;
}

void ValuedSizes::observe(int nodes, double tokens) {
  if (nodes < 2) return;
  ValuedSizes one;
  one.bins[bin_of(nodes)] = {1, static_cast<double>(nodes), tokens};
  add(one);
}

void ValuedSizes::add(const ValuedSizes& later) {
  for (std::size_t b = 0; b < kBins; ++b) {
    Bin& bin = bins[b];
    const Bin& more = later.bins[b];
    const double room = std::max(0.0, kMostSweeps - more.sweeps);
    const double kept = bin.sweeps > room ? room / bin.sweeps : 1;
    bin = {kept * bin.sweeps + more.sweeps, kept * bin.nodes + more.nodes,
           kept * bin.tokens + more.tokens};
  }
}

ValuedGain::ValuedGain(const ValuedSizes& seen, ChanceKind kind, const Acceptance& acceptance)
    : gain_(studied_gain(kind)) {
  constexpr int kLevels = 32;  // PlannerInput::max_levels
  for (std::size_t b = 0; b < kBins; ++b) {
    const ValuedSizes::Bin& bin = seen.bins[b];
    if (!(bin.sweeps > 0)) continue;
    const int nodes = std::max(2, static_cast<int>(std::lround(bin.nodes / bin.sweeps)));
    std::size_t children = acceptance.accept.size();
    for (const auto& deeper : acceptance.deeper) children = std::min(children, deeper.size());
    if (children < 2 && nodes > kLevels) continue;  // there is no tree to compare with
    const double by_rank = expected_tokens(best_tree(nodes, kLevels, acceptance), acceptance);
    gain_[b] = (kBeforeSweeps * gain_[b] + bin.tokens / by_rank) / (kBeforeSweeps + bin.sweeps);
  }
}

double ValuedGain::at(int nodes) const {
  const double place = std::clamp(std::log2(static_cast<double>(std::max(nodes, 2))) - 1, 0.0,
                                  static_cast<double>(kBins - 1));
  const std::size_t below = std::min(static_cast<std::size_t>(place), kBins - 2);
  const double share = place - static_cast<double>(below);
  return (1 - share) * gain_[below] + share * gain_[below + 1];
}

void CalibratedKind::add(const CalibratedKind& later) {
  chance.add(later.chance);
  sizes.add(later.sizes);
}

void Calibrated::add(const Calibrated& later) {
  greedy.add(later.greedy);
  sampled.add(later.sampled);
}

ChanceLearner::ChanceLearner(Calibrated known)
    : known_(std::move(known)),
      greedy_(known_.greedy.chance.weights(prior_weights(ChanceKind::kGreedy))),
      sampled_(known_.sampled.chance.weights(prior_weights(ChanceKind::kSampled))) {}

void ChanceLearner::learn(ChanceKind kind, std::span<const ChanceContext> contexts) {
  if (contexts.empty()) return;
  const ChanceVector& prior = prior_weights(kind);
  ChanceEvidence& known = known_.of(kind).chance;
  const ChanceEvidence more = evidence_of(contexts, known, prior);
  if (!more.is_sound()) return;  // a row of numbers that are no probabilities
  known.add(more);
  shown_.of(kind).chance.add(more);
  (kind == ChanceKind::kGreedy ? greedy_ : sampled_) = known.weights(prior);
}

Calibrated ChanceLearner::take_shown() { return std::exchange(shown_, Calibrated()); }

}  // namespace canopy
