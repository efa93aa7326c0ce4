#include "src/engine/replanner.h"

#include <cstddef>

namespace canopy {

namespace {

constexpr int kInterval = 16;           // sweeps between two looks: what one costs hides among them
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

}  // namespace

Replanner::Replanner(const CostModel& cost, const Plan& plan, bool sampled)
    : cost_(&cost), planned_(plan.acceptance), weights_(plan.weights), sampled_(sampled) {}

std::optional<TreeShape> Replanner::after_sweep(std::span<const AcceptanceTracker* const> texts,
                                                double context, const DraftPolicy& policy) {
  if (++sweeps_ % kInterval != 0 || texts.empty()) return std::nullopt;
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
