#include "src/engine/replanner.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace canopy {

namespace {

// A look takes some milliseconds: one in so long costs nothing.
constexpr Seconds kBetweenLooks{2.0};
constexpr int kMostSweeps = 16;         // between two looks
constexpr double kWorthAChange = 0.97;  // of the predicted seconds per token

Acceptance mean(std::span<const AcceptanceTracker* const> texts) {
  Acceptance sum = texts.front()->estimate();
  for (const AcceptanceTracker* text : texts.subspan(1)) {
    const Acceptance one = text->estimate();
    for (std::size_t k = 0; k < sum.accept.size(); ++k) sum.accept[k] += one.accept[k];
  }
  for (double& p : sum.accept) p /= static_cast<double>(texts.size());
  return sum;
}

/// By the predicted step, not by a clock: a sampled text must not depend on how fast this run is.
int sweeps_between_looks(const Plan& plan) {
  const double sweeps = kBetweenLooks / plan.prediction->best.cost.step;
  return std::clamp(static_cast<int>(std::ceil(sweeps)), 1, kMostSweeps);
}

}  // namespace

Replanner::Replanner(const CostModel& cost, const Plan& plan, bool sampled)
    : cost_(&cost),
      planned_(plan.acceptance),
      weights_(plan.weights),
      sampled_(sampled),
      interval_(sweeps_between_looks(plan)) {}

std::optional<TreeShape> Replanner::after_sweep(std::span<const AcceptanceTracker* const> texts,
                                                double context, const DraftPolicy& policy) {
  if (++sweeps_ % interval_ != 0 || texts.empty()) return std::nullopt;
  const auto sequences = static_cast<int>(texts.size());
  PlannerInput input;
  input.cost = cost_;
  input.acceptance = mean(texts);
  input.sampled = sampled_;
  input.context = context;
  input.least_sequences = input.sequences = sequences;
  input.max_nodes = sequences * policy.room().nodes;
  input.plain = false;
  input.lay_out = [&](const TreeShape& shape, int, std::uint64_t) -> std::optional<WeightPlan> {
    if (!policy.has_room(shape)) return std::nullopt;
    return weights_;
  };
  const auto now = predict(input, policy.shape(), sequences);
  const auto choice = choose(input);
  if (!now || !choice || choice->best.per_token() > kWorthAChange * now->per_token())
    return std::nullopt;
  return choice->best.shape;
}

}  // namespace canopy
