#include "src/model/mixture.h"

#include <algorithm>
#include <array>
#include <optional>

#include "src/base/error.h"
#include "src/model/norms.h"

namespace canopy {

void Mixture::run(const UnitWeights& w, int layer, const MixtureRows& rows, ExpertSource* source,
                  Stream& compute, const std::stop_token& stop) {
  require(!compute.capturing(), "the rows of an expert, known when they run, cannot be captured");
  Ops& ops = device_.ops();
  const ExpertsConfig& experts = config_.experts;
  const TensorView &x = rows.residual, &h = rows.normed;
  const std::int64_t n = x.dim(0);
  const TensorView chosen(rows.routes, DType::kI32, {n, experts.active}),
      weight(chosen.data() + chosen.bytes(), DType::kF32, {n, experts.active}),
      own_rows(weight.data() + weight.bytes(), DType::kI32, {n * experts.active, 2});
  for (std::int64_t first = 0; first < n; first += chunk_) {
    const std::int64_t count = std::min<std::int64_t>(n - first, chunk_);
    const auto own = [&](const TensorView& of) { return of.rows(first, count); };
    const TensorView logits(rows.work, DType::kF32, {count, experts.count});
    normalize(ops, config_, own(x), w, kMlpNorms, own(h), compute);
    const std::array router{Projection{w.matrix(TensorRole::kRouter), {}, logits}};
    ops.linear(compute, own(h), router);
    ops.route(compute, logits,
              experts.normalised ? RouterSoftmax::kOfChosen : RouterSoftmax::kOfAll,
              {own(chosen), own(weight)});
  }
  groups_.read(device_, compute, chosen, experts.count);
  device_.upload(compute, own_rows.data(), std::as_bytes(groups_.rows()));
  if (!w.experts().empty()) source = nullptr;
  if (source) source->want(layer, groups_.chosen());
  for (const std::int32_t index : groups_.experts()) {
    std::optional<ExpertLease> lease;
    if (source) lease.emplace(source->acquire(layer, index, compute, stop));
    const ExpertWeights& expert = lease ? **lease : w.experts()[static_cast<std::size_t>(index)];
    for (int done = 0; done < groups_.count(index); done += chunk_) {
      const int part = std::min(groups_.count(index) - done, chunk_);
      ops.expert(compute, h, weight, own_rows.rows(groups_.first(index) + done, part), expert, x);
    }
  }
}

}  // namespace canopy
