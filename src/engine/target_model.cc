#include "src/engine/target_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "src/base/error.h"
#include "src/base/log_of_sum.h"

namespace canopy {

namespace {

std::string name(const Unit& unit) {
  const std::string layer = "layer " + std::to_string(unit.layer);
  switch (unit.kind) {
    case UnitKind::kAttention:
      return "the attention of " + layer;
    case UnitKind::kMlp:
      return "the MLP of " + layer;
    case UnitKind::kHead:
      break;
  }
  return "the head";
}

}  // namespace

TargetModel::TargetModel(Device& device, Stream& stream, const Checkpoint& checkpoint,
                         TimedWeights& weights, const Limits& limits)
    : device_(device),
      stream_(stream),
      checkpoint_(checkpoint),
      weights_(weights),
      transformer_(device, checkpoint.config(), weights, limits.sweep),
      kv_(device, checkpoint.config(), limits.kv, limits.texts),
      row_(static_cast<std::size_t>(checkpoint.config().vocab)) {}

ConstTensorView TargetModel::forward(std::span<const SequenceRows> rows,
                                     const std::stop_token& stop,
                                     const Transformer::OnUnit& on_unit) {
  return transformer_.forward(rows, stream_, stop, on_unit);
}

std::vector<float> TargetModel::download_rows(const ConstTensorView& matrix,
                                              std::span<const NodeId> rows) {
  const auto columns = static_cast<std::size_t>(matrix.dim(1));
  std::vector<float> values(rows.size() * columns);
  for (std::size_t i = 0; i < rows.size(); ++i)
    device_.download(stream_,
                     std::as_writable_bytes(std::span(values).subspan(i * columns, columns)),
                     matrix.rows(rows[i], 1).data());
  stream_.synchronize();
  return values;
}

TokenReport TargetModel::report_token(const ConstTensorView& logits, std::int64_t row,
                                      TokenId chosen, int count) {
  const ConstTensorView view = logits.rows(row, 1);
  device_.download(stream_, std::as_writable_bytes(std::span(row_)), view.data());
  stream_.synchronize();
  const double log_sum = log_of_sum(row_);
  if (std::isnan(log_sum)) throw NotFinite();
  std::vector<TokenId> order(row_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](TokenId id) { return row_[static_cast<std::size_t>(id)]; };
  const auto best = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), best, order.end(), [&](TokenId a, TokenId b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  TokenReport report{{chosen, logit(chosen) - log_sum}, {}};
  for (auto id = order.begin(); id != best; ++id) report.top.push_back({*id, logit(*id) - log_sum});
  return report;
}

void TargetModel::refuse_not_finite(std::span<const SequenceRows> rows,
                                    const std::stop_token& stop) {
  std::vector<float> values;
  const auto all_finite = [&] {
    const ConstTensorView hidden = transformer_.hidden();
    values.resize(hidden.bytes() / sizeof(float));
    device_.download(stream_, std::as_writable_bytes(std::span(values)), hidden.data());
    stream_.synchronize();
    return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  };
  std::string before = "the embedding of a token";  // what has just been computed
  std::optional<std::string> first;
  forward(rows, stop, [&](const Unit& unit) {
    if (!first && !all_finite()) first = before;
    before = name(unit);
  });
  throw Error(checkpoint_.root().string() +
              ": the values of this model are not all finite numbers, first those of " +
              first.value_or("the head") +
              ": its weights are damaged (compare the file's checksum with its source's) "
              "or overflow");
}

}  // namespace canopy
