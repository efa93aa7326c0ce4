#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "offload/device_weights.h"
#include "src/engine/engine.h"
#include "src/engine/replanner.h"
#include "src/engine/timed_weights.h"
#include "src/speculation/draft_policy.h"
#include "src/speculation/verifier.h"

namespace canopy {

using Clock = std::chrono::steady_clock;
inline Seconds since(Clock::time_point start) { return Clock::now() - start; }

/// The two caches of one sequence; those that a batch has are made once and used in turn.
struct SequenceCaches {
  std::unique_ptr<KvCache> target, draft;  // no draft's without speculation
};

/// A text in the making: what an engine must know of it from step to step.
struct Sequence {
  const GenerateRequest* request = nullptr;
  GenerateReport* report = nullptr;
  SequenceCaches* caches = nullptr;
  int most = 0;                  // tokens to generate
  std::vector<TokenId> behind;   // committed tokens that the target has not run: the prompt, once
  std::vector<TokenId> pending;  // those that the draft has not; the root last
  bool ended = false;
  std::optional<AcceptanceTracker> tracker;  // where the plan follows the text

  StepRng rng() const {
    return {request->seed, request->sequence, static_cast<std::uint64_t>(report->steps)};
  }
};

/// What the parts of Engine share; one thread.
struct Engine::Impl {
  ModelFiles models;
  const Topology topology;
  Placement placement;
  std::unique_ptr<Device> device;
  Trace* const trace;
  EnergyMeter* const energy;
  Plan plan;
  LinkSample link_probe;
  Notes notes;
  Seconds load_time{};
  Seconds drafting{};  // growing the trees of the last step
  std::unique_ptr<WeightSource> target_weights, draft_weights;
  TimedWeights *target_times = nullptr, *draft_times = nullptr;  // the draft's with a trace alone
  Streamer* streamer = nullptr;        // of the target, when weights come from disk
  UploadedWeights* uploads = nullptr;  // and when they go to a device with memory of its own
  std::unique_ptr<Transformer> target, draft;
  std::vector<SequenceCaches> caches;  // one for each sequence of a batch
  std::optional<DraftPolicy> policy;
  const CostModel* cost = nullptr;
  bool sampled = false;                // by the plan
  std::optional<Replanner> replanner;  // where the plan is adaptive
  std::optional<Verifier> verifier;
  std::optional<Acceptance> synthetic_acceptance;
  std::vector<float> host_logits;
  std::unique_ptr<Stream> compute;  // last, so that its work ends before anything above is freed

  Impl(ModelFiles files, const EngineOptions& options, const LoadProgress& progress,
       const std::stop_token& stop);

  LinkReport link() const;
  /// The target's weights by the plan; `notes` gains each fallback taken.
  std::unique_ptr<WeightSource> make_target_weights(const EngineOptions& options,
                                                    const LoadProgress& progress,
                                                    const std::stop_token& stop);
  StreamerOptions reads(const EngineOptions& options);
  TimedWeights& time(std::unique_ptr<WeightSource>& source, Trace::Lane lane);  // wraps it
  void begin_uploads();
  MemoryNode ring_node() const {
    return placement.numa_node ? MemoryNode{&topology, *placement.numa_node} : MemoryNode();
  }

  /// `chosen`'s log probability and the `count` likeliest, from one row of the target's logits.
  /// Waits for the stream. Throws NotFinite.
  TokenReport report_token(const ConstTensorView& logits, std::int64_t row, TokenId chosen,
                           int count);

  /// Tokens that a request may generate. Throws Error if its prompt does not fit the plan.
  int most_tokens(const GenerateRequest& request) const;
  Sequence begin(const GenerateRequest& request, GenerateReport& report, SequenceCaches& caches);

  /// Grow, sweep, verify: one sweep for all `sequences`, between 1 and as many as there are caches.
  /// Each gains at least one token beyond its `behind` and `pending`, which are brought up to date:
  /// steps[i] for sequences[i]. Throws Error or Stopped; the sequences cannot go on after that.
  struct Step {
    std::vector<TokenId> tokens;
    std::vector<TokenReport> logprobs;  // when asked: one per token
  };
  std::vector<Step> step(std::span<Sequence> sequences, const OnUnit& on_unit,
                         const std::stop_token& stop);
  /// Whether the next sweep checks trees. (The replanner may have turned to plain decoding.)
  bool grows_trees() const { return policy && !(replanner && replanner->shape().size() == 1); }
  void note_refused_graphs();  // by the device, once a text was generated
  /// Runs the sweep again and says in which unit the target's values cease to be finite. Always
  /// throws: Error, or Stopped.
  [[noreturn]] void refuse_not_finite(std::span<const SequenceRows> parts,
                                      const std::stop_token& stop);
  /// Looks whether the sequences, those of the next sweep, should have trees of another shape.
  void replan(std::span<Sequence> sequences);
  Step conclude(Sequence& sequence, const Draft& draft, const ConstTensorView& logits);
};

}  // namespace canopy
