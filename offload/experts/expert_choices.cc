#include "offload/experts/expert_choices.h"

#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t layers_of(const SweepLayout& sweep) {
  require(!sweep.experts.empty(), "an expert cache is for a mixture whose experts are apart");
  return sweep.experts.size() / static_cast<std::size_t>(sweep.config.experts.count);
}

}  // namespace

ExpertChoices::ExpertChoices(const SweepLayout& sweep, std::size_t staying, RouteTrace* trace)
    : per_layer_(static_cast<std::size_t>(sweep.config.experts.count)),
      active_(static_cast<std::size_t>(sweep.config.experts.active)),
      first_(first_experts(sweep)),
      policy_(sweep.config.experts.count,
              share_slots(staying, layers_of(sweep), sweep.config.experts.count)),
      routes_(layers_of(sweep)),
      trace_(trace) {
  if (!trace_) return;
  std::vector<int> layers;
  for (std::size_t i = 0; i < sweep.experts.size(); i += per_layer_)
    layers.push_back(sweep.experts[i].layer);
  trace_->begin(layers, sweep.config.experts.count, sweep.config.experts.active,
                share_slots(staying, layers.size(), sweep.config.experts.count));
}

ExpertChoices::Wanted ExpertChoices::want(int layer, std::span<const std::int32_t> chosen) {
  const std::size_t first = index_of(layer, 0), which = layer_of(first);
  if (which < routed_) credit_sweep();
  routed_ = which + 1;
  routes_[which].assign(chosen.begin(), chosen.end());
  if (trace_) trace_->routed(layer, chosen);
  std::vector<int> rows(per_layer_);
  for (const std::int32_t e : chosen)
    if (e >= 0) ++rows.at(static_cast<std::size_t>(e));
  std::vector<ExpertDemand> demands;
  Wanted wanted;
  for (std::size_t e = 0; e < per_layer_; ++e)
    if (rows[e] > 0) {
      demands.push_back({static_cast<std::int32_t>(e), rows[e]});
      wanted.experts.push_back(first + e);
    }
  const ExpertPolicy::Step step = policy_.ask(which, demands);
  hits_ += step.hits.size();
  misses_ += step.misses.size();
  for (const std::int32_t e : step.leaving)
    wanted.leaving.push_back(first + static_cast<std::size_t>(e));
  return wanted;
}

std::vector<std::size_t> ExpertChoices::set_staying(std::size_t count) {
  const auto experts = static_cast<int>(per_layer_);
  const std::vector<int> quotas = share_slots(count, routes_.size(), experts);
  std::vector<std::size_t> leaving;
  for (std::size_t layer = 0; layer < quotas.size(); ++layer)
    for (const std::int32_t e : policy_.set_quota(layer, quotas[layer]))
      leaving.push_back(layer * per_layer_ + static_cast<std::size_t>(e));
  if (trace_) trace_->stay(quotas);
  return leaving;
}

/// Credits the policy with what the texts chose in the sweep before.
void ExpertChoices::credit_sweep() {
  if (trace_) trace_->kept(kept_);
  for (std::size_t layer = 0; layer < routes_.size(); ++layer) {
    const std::span<const std::int32_t> all = routes_[layer];
    const auto credit = [&](std::size_t row) {
      policy_.credit(layer, all.subspan(row * active_, active_));
    };
    if (kept_)
      for (const std::int32_t row : *kept_) credit(static_cast<std::size_t>(row));
    else
      for (std::size_t row = 0; row < all.size() / active_; ++row) credit(row);
    routes_[layer].clear();
  }
  kept_.reset();
}

void ExpertChoices::abandon_sweep() noexcept {
  for (std::vector<std::int32_t>& of_layer : routes_) of_layer.clear();
  kept_.reset();
  routed_ = 0;
  try {
    if (trace_) trace_->abandoned();
  } catch (const Error&) {  // closing it says so
  }
}

}  // namespace canopy
