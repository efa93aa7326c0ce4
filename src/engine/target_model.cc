#include "src/engine/target_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "src/base/error.h"
#include "src/engine/ranks/sweep_messages.h"

namespace canopy {

namespace {

std::string name(const Unit& unit) {
  const std::string layer = "layer " + std::to_string(unit.layer);
  switch (unit.kind) {
    case UnitKind::kAttention:
      return "the attention of " + layer;
    case UnitKind::kMlp:
      return "the MLP of " + layer;
    case UnitKind::kRecurrent:
      return "the delta net of " + layer;
    case UnitKind::kHead:
      break;
  }
  return "the head";
}

}  // namespace

TargetModel::TargetModel(Device& device, Stream& stream, const Checkpoint& checkpoint,
                         TimedWeights& weights, const Limits& limits, Cluster* cluster)
    : device_(device),
      stream_(stream),
      checkpoint_(checkpoint),
      weights_(weights),
      announces_to_(cluster && cluster->share().rank == 0 ? cluster : nullptr),
      transformer_(device, checkpoint.config(), weights, limits.sweep, cluster),
      kv_(device, checkpoint.config(), limits.kv, limits.texts),
      row_(static_cast<std::size_t>(checkpoint.config().vocab)) {
  if (announces_to_)
    kv_.pool().on_keep([this](const KvState& state, std::span<const NodeId> path) {
      announces_to_->announce(keep_message(state, path));
    });
}

ConstTensorView TargetModel::forward(std::span<const SequenceRows> rows,
                                     const std::stop_token& stop,
                                     const Transformer::OnUnit& on_unit) {
  if (announces_to_) {
    // Takes the blocks that the rows need, which the message names.
    for (const SequenceRows& part : rows)
      part.kv->reserve(part.kv->length() + part.first_scratch_slot + part.batch.first_node +
                           static_cast<int>(part.batch.tokens.size()),
                       stream_);
    announces_to_->announce(sweep_message(rows));
  }
  return transformer_.forward(rows, stream_, stop, on_unit);
}

ConstTensorView TargetModel::forward(std::span<const SequenceRows> rows,
                                     std::span<TokenScore> scores, const std::stop_token& stop,
                                     const Transformer::OnUnit& on_unit) {
  if (scores.empty()) return forward(rows, stop, on_unit);
  require(announces_to_ == nullptr,
          "log probabilities of a prompt are not computed by several processes yet: use one");
  const auto add = [&](int first_row, std::int64_t first_token, const ConstTensorView& logits) {
    const auto tokens = static_cast<std::size_t>(logits.dim(1));
    const auto at_once = static_cast<std::int64_t>(row_.size() / tokens);
    for (std::int64_t row = 0; row < logits.dim(0); row += at_once) {
      const std::int64_t count = std::min(at_once, logits.dim(0) - row);
      const std::span<float> values =
          std::span(row_).first(static_cast<std::size_t>(count) * tokens);
      device_.download(stream_, std::as_writable_bytes(values), logits.rows(row, count).data());
      stream_.synchronize();
      for (std::int64_t i = 0; i < count; ++i)
        scores[static_cast<std::size_t>(first_row + row + i)].add(
            first_token, values.subspan(static_cast<std::size_t>(i) * tokens, tokens));
    }
  };
  return transformer_.forward(rows, stream_, stop, on_unit, add);
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
  TokenScore score(chosen, count);
  score.add(0, row_);
  return std::move(score).report();
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
