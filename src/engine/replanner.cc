#include "src/engine/replanner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace canopy {

namespace {

// A look takes some milliseconds: one in so long costs nothing.
constexpr Seconds kBetweenLooks{2.0};
constexpr int kMostSweeps = 16;         // between two looks
constexpr double kWorthAChange = 0.97;  // of the predicted seconds per token

// While decoding is plain, a chain is tried: after so many sweeps at first, after twice as many
// each time that it did not pay. A text that the draft never knows costs about log2(sweeps) trials.
constexpr int kFirstTrial = 16;
constexpr int kTrialNodes = 4, kTrialSweeps = 4;
// Observed nodes that what came before a trial then counts for: fewer than a trial brings where the
// draft is good, so that it can turn the estimate.
constexpr double kBeforeTrial = 8;

Acceptance mean(std::span<AcceptanceTracker* const> texts) {
  Acceptance sum = texts.front()->estimate();
  const auto add = [](std::vector<double>& to, const std::vector<double>& accept) {
    for (std::size_t k = 0; k < to.size(); ++k) to[k] += accept[k];
  };
  for (const AcceptanceTracker* text : texts.subspan(1)) {
    const Acceptance one = text->estimate();
    add(sum.accept, one.accept);
    for (std::size_t level = 0; level < sum.deeper.size(); ++level)
      add(sum.deeper[level], one.deeper[level]);
  }
  const auto divide = [&](std::vector<double>& accept) {
    for (double& p : accept) p /= static_cast<double>(texts.size());
  };
  divide(sum.accept);
  for (std::vector<double>& accept : sum.deeper) divide(accept);
  return sum;
}

/// Counts by the predicted step, not by a clock: a sampled text must not depend on how fast this
/// run is.
int sweeps_between_looks(const Plan& plan) {
  const double sweeps = kBetweenLooks / plan.prediction->best.cost.step;
  return std::clamp(static_cast<int>(std::ceil(sweeps)), 1, kMostSweeps);
}

}  // namespace

Replanner::Replanner(const Plan& plan, bool sampled)
    : cost_(plan.cost),
      planned_(plan.acceptance),
      weights_(plan.weights),
      sampled_(sampled),
      interval_(sweeps_between_looks(plan)),
      first_shape_(plan.policy.shape),
      shape_(plan.policy.shape),
      texts_(plan.max_sequences),
      until_look_(interval_),
      plain_sweeps_(kFirstTrial) {}

bool Replanner::after_sweep(std::span<AcceptanceTracker* const> texts, double context,
                            const Drafter& drafter) {
  if (texts.empty()) return false;
  const auto count = static_cast<int>(texts.size());
  // Fewer texts can have larger trees, and more of them cannot keep those.
  const bool changed = std::exchange(texts_, count) != count;
  const bool cut = !drafter.has_room(shape_, count);
  if (cut) shape_ = first_shape_;
  --until_look_;
  if (until_look_ > 0 && (!changed || shape_.size() == 1)) return cut;
  if (shape_.size() == 1) {
    for (AcceptanceTracker* text : texts) text->fade_to(kBeforeTrial);
    trying_ = true;
    until_look_ = kTrialSweeps;
    return change_to(TreeShape::chain(std::min(kTrialNodes, drafter.most_nodes(count))));
  }
  TreeShape next = best_shape(texts, context, drafter, trying_ ? TreeShape() : shape_);
  if (next.size() == 1) {
    plain_sweeps_ = trying_ ? 2 * plain_sweeps_ : kFirstTrial;
    until_look_ = plain_sweeps_;
  } else {
    until_look_ = interval_;
  }
  trying_ = false;
  return change_to(std::move(next)) || cut;
}

TreeShape Replanner::shape_beside_prompts(int texts, int rows) const {
  StepQuery step;
  step.shape = &shape_;
  step.tokens = expected_tokens(shape_, planned_);
  step.sequences = texts;
  step.context = rows / (2.0 * texts);  // behind the rows of a prompt, in the mean
  step.sampled = sampled_;
  return tree_beside_prompt(*cost_, weights_, step, rows, planned_);
}

TreeShape Replanner::best_shape(std::span<AcceptanceTracker* const> texts, double context,
                                const Drafter& drafter, const TreeShape& kept) const {
  const auto sequences = static_cast<int>(texts.size());
  PlannerInput input;
  input.cost = cost_.get();
  input.acceptance = mean(texts);
  input.sampled = sampled_;
  input.context = context;
  input.least_sequences = input.sequences = sequences;
  input.max_nodes = sequences * drafter.most_nodes(sequences);
  input.lay_out = [&](const TreeShape& shape, int, std::uint64_t) -> std::optional<WeightPlan> {
    if (!drafter.has_room(shape, sequences)) return std::nullopt;
    return weights_;
  };
  const auto now = predict(input, kept, sequences);
  const auto choice = choose(input);
  if (!now || !choice || choice->best.per_token() > kWorthAChange * now->per_token()) return kept;
  return choice->best.shape;
}

bool Replanner::change_to(TreeShape shape) {
  if (shape == shape_) return false;
  shape_ = std::move(shape);
  return true;
}

}  // namespace canopy
