#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "offload/device_weights.h"
#include "offload/timed_weights.h"
#include "src/engine/engine.h"
#include "src/engine/loaded_heads.h"
#include "src/model/kv_caches.h"
#include "src/speculation/drafter.h"
#include "src/speculation/verifier.h"

namespace canopy {

using Clock = std::chrono::steady_clock;
inline Seconds since(Clock::time_point start) { return Clock::now() - start; }

/// What an engine has loaded by its plan, and what every sweep is made of: sessions and
/// measurements use it in turn. One thread.
struct Runtime {
  ModelFiles models;
  const Topology topology;
  Placement placement;
  const ModelSweeps sweeps;
  std::unique_ptr<Device> device;
  Trace* const trace;
  EnergyMeter* const energy;
  Plan plan;
  LinkSample link_probe;
  Notes notes;
  Seconds load_time{};
  std::unique_ptr<WeightSource> target_weights, draft_weights, inner_weights;
  TimedWeights *target_times = nullptr, *draft_times = nullptr;  // the draft's with a trace alone
  Streamer* streamer = nullptr;        // of the target, when weights come from disk
  UploadedWeights* uploads = nullptr;  // and when they go to a device with memory of its own
  std::unique_ptr<Transformer> target, draft, inner;
  LoadedHeads heads;                     // where they draft
  std::optional<KvCaches> kv;            // the target's, one for each text of a sweep
  std::unique_ptr<Drafter> drafter;      // none without speculation
  std::unique_ptr<KvCache> draft_cache;  // of a beam search
  bool sampled = false;                  // by the plan
  std::optional<Verifier> verifier;
  std::vector<float> host_logits;   // a row on its way to a report
  std::unique_ptr<Stream> compute;  // last, so that its work ends before anything above is freed

  /// Plans first, then loads. Throws Error if the plan does not fit, Stopped on request.
  Runtime(ModelFiles files, const EngineOptions& options, const LoadProgress& progress,
          const std::stop_token& stop);

  LinkReport link() const;           // since it was loaded
  std::uint64_t disk_bytes() const;  // likewise, of all models
  /// Some rows of an f32 matrix. Waits for the stream.
  std::vector<float> download_rows(const ConstTensorView& matrix, std::span<const NodeId> rows);
  /// `chosen`'s log probability and the `count` likeliest, from one row of the target's logits.
  /// Waits for the stream. Throws NotFinite.
  TokenReport report_token(const ConstTensorView& logits, std::int64_t row, TokenId chosen,
                           int count);
  /// Runs the sweep again and says in which unit the target's values cease to be finite. Always
  /// throws: Error, or Stopped.
  [[noreturn]] void refuse_not_finite(std::span<const SequenceRows> rows,
                                      const std::stop_token& stop);

 private:
  /// The target's weights by the plan; `notes` gains each fallback taken.
  std::unique_ptr<WeightSource> make_target_weights(const EngineOptions& options,
                                                    const LoadProgress& progress,
                                                    const std::stop_token& stop);
  /// The draft's: of a model of its own, or what rests of the target.
  std::unique_ptr<WeightSource> make_draft_weights(const LoadProgress& progress,
                                                   const std::stop_token& stop);
  /// What guesses the draft model's tokens, of a hierarchy; else null.
  std::unique_ptr<Drafter> make_inner_drafter(const LoadProgress& progress,
                                              const std::stop_token& stop);
  StreamerOptions reads(const EngineOptions& options);
  TimedWeights& time(std::unique_ptr<WeightSource>& source, Trace::Lane lane);  // wraps it
  void begin_uploads();
  MemoryNode ring_node() const {
    return placement.numa_node ? MemoryNode{&topology, *placement.numa_node} : MemoryNode();
  }
};

}  // namespace canopy
