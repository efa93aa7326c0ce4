#pragma once
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "offload/timed_weights.h"
#include "src/checkpoint/checkpoint.h"
#include "src/cluster/cluster.h"
#include "src/engine/session.h"
#include "src/engine/token_score.h"
#include "src/model/kv_caches.h"
#include "src/model/transformer.h"
#include "src/speculation/verifier.h"

namespace canopy {

/// The target on its device, with a KV cache for each text of a sweep. One thread.
class TargetModel {
 public:
  struct Limits {
    Transformer::Limits sweep;
    KvRoom kv;
    int texts = 1;  // that have a cache each
  };
  /// Keeps what it is given, which must outlive it. Of several ranks that share its rows, the first
  /// announces what it runs, and the others run what was announced (follow()). Throws Error if the
  /// device is full.
  TargetModel(Device& device, Stream& stream, const Checkpoint& checkpoint, TimedWeights& weights,
              const Limits& limits, Cluster* cluster = nullptr);

  const ModelConfig& config() const { return checkpoint_.config(); }
  Stream& stream() { return stream_; }
  KvCaches& kv() { return kv_; }
  const KvCaches& kv() const { return kv_; }
  /// Serves callers that run other models alike.
  Transformer& transformer() { return transformer_; }

  /// One sweep; see Transformer::forward().
  ConstTensorView forward(std::span<const SequenceRows> rows, const std::stop_token& stop = {},
                          const Transformer::OnUnit& on_unit = {});
  /// The same, with a score for each of the rows' read_rows, in their order.
  ConstTensorView forward(std::span<const SequenceRows> rows, std::span<TokenScore> scores,
                          const std::stop_token& stop, const Transformer::OnUnit& on_unit);
  /// Rows of the last sweep that became text: what their like will ask for is kept at hand.
  void keep_rows(std::span<const std::int32_t> rows) {
    if (ExpertSource* const experts = weights_.experts()) experts->keep_rows(rows);
  }
  ConstTensorView logit_inputs() const { return transformer_.logit_inputs(); }
  /// The units of a sweep, and the times of the last one, once the stream is idle.
  std::span<const Unit> units() const { return weights_.units(); }
  const SweepTimes& times() { return weights_.times(); }

  /// Some rows of an f32 matrix. Waits for the stream.
  std::vector<float> download_rows(const ConstTensorView& matrix, std::span<const NodeId> rows);
  /// `chosen`'s log probability and the `count` likeliest, from one row of logits. Waits for the
  /// stream. Throws NotFinite.
  TokenReport report_token(const ConstTensorView& logits, std::int64_t row, TokenId chosen,
                           int count);
  /// Runs the sweep again and says in which unit values cease to be finite. Always throws: Error,
  /// or Stopped.
  [[noreturn]] void refuse_not_finite(std::span<const SequenceRows> rows,
                                      const std::stop_token& stop);

 private:
  Device& device_;
  Stream& stream_;
  const Checkpoint& checkpoint_;
  TimedWeights& weights_;
  Cluster* const announces_to_;  // the other ranks; null: there are none, or this is one of them
  Transformer transformer_;
  KvCaches kv_;
  std::vector<float> row_;  // logits on their way to reports, as many as a row has
};

}  // namespace canopy
