#include "src/model/mixture.h"

#include <algorithm>
#include <array>
#include <vector>

#include "src/base/error.h"
#include "src/model/norms.h"

namespace canopy {

namespace {

/// Gives the form of an expert, whose biases the unit has with those of all.
ExpertForm form_of(const UnitWeights& w, const Gating& gating, std::int32_t expert) {
  const auto own = [&](TensorRole role) {
    const ConstTensorView all = w.vector(role);
    return all.empty() ? all
                       : ConstTensorView(all.data() + expert * all.dim(1) *
                                                          static_cast<std::int64_t>(sizeof(float)),
                                         DType::kF32, {all.dim(1)});
  };
  return {gating, own(TensorRole::kExpertGateBias), own(TensorRole::kExpertUpBias),
          own(TensorRole::kExpertDownBias)};
}

ExpertGroups::Shared shared_of(const ExpertsConfig& experts) {
  using enum ExpertGroups::Shared;
  return experts.shared_dim == 0 ? kNone : experts.shared_switch ? kWeighted : kWhole;
}

}  // namespace

Mixture::Routes Mixture::routes(std::byte* at, std::int64_t n) const {
  const std::int64_t active = config_.experts.active,
                     shared = config_.experts.shared_dim > 0 ? 1 : 0;
  const TensorView chosen(at, DType::kI32, {n, active}),
      weight(chosen.data() + chosen.bytes(), DType::kF32, {n, active}),
      shared_weight(weight.data() + weight.bytes(), DType::kF32, {n, shared}),
      rows(shared_weight.data() + shared_weight.bytes(), DType::kI32, {n * (active + shared), 2});
  return {chosen, weight, shared_weight,
          TensorView(weight.data(), DType::kF32, {n, active + shared}), rows};
}

/// Normalises the rows, and finds which experts they have and by what weights.
void Mixture::choose(const UnitWeights& w, const MixtureRows& rows, const Routes& to,
                     Stream& compute) {
  Ops& ops = device_.ops();
  const ExpertsConfig& experts = config_.experts;
  const std::int64_t n = rows.residual.dim(0);
  for (std::int64_t first = 0; first < n; first += chunk_) {
    const std::int64_t count = std::min<std::int64_t>(n - first, chunk_);
    const auto own = [&](const TensorView& of) { return of.rows(first, count); };
    const TensorView h = own(rows.normed), logits(rows.work, DType::kF32, {count, experts.count});
    normalize(ops, config_, own(rows.residual), w, kMlpNorms, h, compute);
    std::vector<Projection> scores{
        {w.matrix(TensorRole::kRouter), w.vector(TensorRole::kRouterBias), logits}};
    const bool weighted = shared_of(experts) == ExpertGroups::Shared::kWeighted;
    if (weighted)
      scores.push_back({w.matrix(TensorRole::kSharedSwitch), {}, own(to.shared_weight)});
    ops.linear(compute, h, scores);
    ops.route(compute, logits,
              {experts.score, experts.normalised ? Normalised::kYes : Normalised::kNo,
               experts.scale * config_.factors.branch, w.vector(TensorRole::kChoiceBias)},
              {own(to.chosen), own(to.weight)});
    if (weighted)
      ops.activate(compute, Activation::kSigmoid, own(to.shared_weight), own(to.shared_weight));
  }
}

void Mixture::run(const UnitWeights& w, int layer, const MixtureRows& rows, ExpertSource* source,
                  Stream& compute, const std::stop_token& stop) {
  require(!compute.capturing(), "the rows of an expert, known when they run, cannot be captured");
  const ExpertsConfig& experts = config_.experts;
  const std::int64_t n = rows.residual.dim(0);
  const Routes routes = this->routes(rows.routes, n);
  choose(w, rows, routes, compute);
  groups_.read(device_, compute, routes.chosen, experts.count, shared_of(experts));
  device_.upload(compute, routes.rows.data(), std::as_bytes(groups_.rows()));
  if (!w.experts().empty()) source = nullptr;
  if (source) source->want(layer, groups_.chosen());
  // Number of experts that are computed together. Where computing is quick and a launch is not, as
  // many as a row has, since a source can lend as many at once; else each as soon as it is there.
  const std::size_t together =
      device_.shares_host_memory() ? 1 : static_cast<std::size_t>(experts.active);
  std::vector<ExpertLease> leases;
  std::vector<ExpertUse> uses;
  const auto compute_these = [&] {
    device_.ops().experts(compute, rows.normed, routes.all_weights, uses, rows.residual);
    uses.clear();
    leases.clear();
  };
  const auto add = [&](const ExpertWeights& expert, const ExpertForm& form, std::int64_t first,
                       std::int64_t count) {
    for (std::int64_t done = 0; done < count; done += chunk_)
      uses.push_back(
          {expert, form,
           routes.rows.rows(first + done, std::min<std::int64_t>(count - done, chunk_))});
  };
  // The one that every row has comes first: it is there, while others are still being read.
  if (experts.shared_dim > 0)
    add({w.matrix(TensorRole::kSharedGate), w.matrix(TensorRole::kSharedUp),
         w.matrix(TensorRole::kSharedDown)},
        {experts.gating}, n * experts.active, n);
  if (!uses.empty() && together == 1) compute_these();
  std::size_t waiting = 0;
  for (const std::int32_t index : groups_.experts()) {
    if (source) leases.push_back(source->acquire(layer, index, compute, stop));
    add(source ? *leases.back() : w.experts()[static_cast<std::size_t>(index)],
        form_of(w, experts.gating, index), groups_.first(index), groups_.count(index));
    if (++waiting % together == 0) compute_these();
  }
  if (!uses.empty()) compute_these();
}

}  // namespace canopy
