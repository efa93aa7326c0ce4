#include "src/engine/replanner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

// A look takes some milliseconds: one in so long costs nothing.
constexpr Seconds kBetweenLooks{2.0};
constexpr int kMostSweeps = 16;         // between two looks
constexpr double kWorthAChange = 0.97;  // of the predicted seconds per token

// While decoding is plain, a chain is tried: after kFirstTrial sweeps at first, after twice as many
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

ChanceKind kind_of(bool sampled) { return sampled ? ChanceKind::kSampled : ChanceKind::kGreedy; }

}  // namespace

Replanner::Replanner(const Plan& plan, bool sampled)
    : cost_(plan.cost),
      planned_(plan.acceptance),
      prediction_(*plan.prediction),
      weights_(plan.weights),
      sampled_(sampled),
      valued_(plan.policy.growth.kind == Growth::Kind::kValued),
      sizes_(plan.calibrated.of(kind_of(sampled)).sizes),
      interval_(sweeps_between_looks(plan)),
      shape_(plan.policy.shape),
      plain_sweeps_(kFirstTrial) {}

bool Replanner::before_sweep(const SharingTexts& texts, const Drafter& drafter) {
  const auto count = static_cast<int>(texts.trackers.size());
  if (texts.weights) weights_ = *texts.weights;
  weights_.experts.habits = texts.routes;
  TreeShape next;
  if (std::exchange(texts_, count) != count) {
    next = best_shape(texts, drafter, planned_for(count));
    trying_ = false;
  } else if (--until_look_ > 0) {
    return false;
  } else if (shape_.size() == 1) {
    for (AcceptanceTracker* text : texts.trackers) text->fade_to(kBeforeTrial);
    const TreeShape trial =
        TreeShape::chain(std::clamp(drafter.room().nodes / count, 1, kTrialNodes));
    trying_ = trial.size() > 1 && drafter.has_room(trial, count);
    until_look_ = trying_ ? kTrialSweeps : plain_sweeps_;
    return trying_ && change_to(trial);
  } else {
    const TreeShape plain;
    next = best_shape(texts, drafter, trying_ ? &plain : &shape_);
  }
  if (next.size() == 1) {
    plain_sweeps_ = trying_ ? 2 * plain_sweeps_ : kFirstTrial;
    until_look_ = plain_sweeps_;
  } else {
    until_look_ = interval_;
  }
  trying_ = false;
  return change_to(std::move(next));
}

TreeShape Replanner::shape_beside_prompts(int texts, int rows) const {
  StepQuery step;
  step.shape = &shape_;
  step.tokens = expected_tokens(shape_, planned_);
  step.sequences = texts;
  step.context = rows / (2.0 * texts);  // before the rows of a prompt, in the mean
  step.sampled = sampled_;
  if (valued_) step.valued = valued_forwards(shape_, step.tokens);
  return tree_beside_prompt(*cost_, weights_, step, rows, planned_);
}

/// Returns what the draft takes to read what it has missed, for each token that the texts may still
/// gain.
Seconds Replanner::catch_up(const SharingTexts& texts) const {
  if (texts.missed == 0 || !cost_->profile().drafting) return Seconds(0);
  const HardwareProfile::DraftCosts& draft = *cost_->profile().drafting;
  const Curve& level = sampled_ ? draft.level_sampled : draft.level_greedy;
  return level.at(texts.missed) / std::max(1, texts.left);
}

TreeShape Replanner::best_shape(const SharingTexts& texts, const Drafter& drafter,
                                const TreeShape* kept) const {
  const auto count = static_cast<int>(texts.trackers.size());
  PlannerInput input;
  input.cost = cost_.get();
  input.acceptance = mean(texts.trackers);
  input.sampled = sampled_;
  input.context = texts.context;
  input.catch_up = catch_up(texts);
  input.valued = valued_;
  if (valued_) input.gain.emplace(sizes_, kind_of(sampled_), input.acceptance);
  auto choice = choose_within(input, weights_, drafter.room(), count);
  require(choice.has_value(), "a plan has room for the roots of all its texts");
  if (kept == nullptr) return std::move(choice->best.shape);
  input.lay_out = [this](const TreeRoom&, int, std::uint64_t) { return weights_; };
  const auto now = predict(input, *kept, count, count);
  if (choice->best.per_token() > kWorthAChange * now->per_token()) return *kept;
  return std::move(choice->best.shape);
}

const TreeShape* Replanner::planned_for(int texts) const {
  for (const Candidate* one : {&prediction_.best, &prediction_.full})
    if (one->sequences == texts) return &one->shape;
  return nullptr;
}

bool Replanner::change_to(TreeShape shape) {
  if (shape == shape_) return false;
  shape_ = std::move(shape);
  return true;
}

}  // namespace canopy
