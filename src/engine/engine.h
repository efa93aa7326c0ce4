#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "offload/io/link_probe.h"
#include "offload/streamer.h"
#include "planner/acceptance_sample.h"
#include "src/engine/calibration_prompts.h"
#include "src/engine/plan.h"
#include "src/machine/energy.h"
#include "src/machine/placement.h"
#include "src/model/transformer.h"
#include "src/text/tokenizer.h"

namespace canopy {

/// What can be known of the models before any weight is read.
struct ModelFiles {
  Checkpoint target;
  std::optional<Checkpoint> draft;
  std::unique_ptr<Tokenizer> tokenizer;  // the target's
};
/// Throws Error if a model is refused, or if the draft's vocabulary is not the target's.
ModelFiles open_models(const std::filesystem::path& target, const std::filesystem::path& draft);

struct EngineOptions {
  DeviceChoice device;  // threads 0: one per physical core; cpus: all that may be used
  /// Makes another device than make_device() would: tests put one of their own here.
  std::function<std::unique_ptr<Device>()> make_device = {};
  PlanRequest plan;               // plan.memory 0: a safe share of what is free
  bool graphs = true;             // on a GPU: the draft's levels are launched as one each
  bool verify_weights = false;    // each streamed unit by a checksum, on every sweep but the first
  Trace* trace = nullptr;         // gains what happens when; must outlive the engine
  EnergyMeter* energy = nullptr;  // is read around prefill and decode; must outlive the engine
  /// Instead of what verification says, the walk down each tree is drawn from this vector: to
  /// measure what steps of models with random weights would cost. The text is then no model's.
  std::optional<Acceptance> synthetic_acceptance = {};
};

/// Where an engine with these options computes, of the CPUs that `topology` has.
Placement place_engine(const Topology& topology, const Checkpoint& target,
                       const EngineOptions& options);
/// The device that it computes on, with the threads of that placement.
std::unique_ptr<Device> open_device(const EngineOptions& options, const Placement& placement);

struct GenerateRequest {
  std::span<const TokenId> prompt;  // at least one token
  Sampling sampling;
  std::uint64_t seed = 0;
  std::uint32_t sequence =
      0;  // which continuation of this seed: each has random numbers of its own
  int max_new_tokens = 0;
  bool ignore_end = false;  // go on past the model's end tokens
  int logprobs = 0;         // most likely alternatives to report per token; 0: none
};

struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;  // natural log, of the target's distribution before temperature and cuts
};
/// The chosen token's log probability, and those of the likeliest, best first.
struct TokenReport {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

/// One generated text.
struct GenerateReport {
  std::vector<TokenId> tokens;        // without the prompt
  std::string finish_reason;          // "stop" (an end token), "length", "cancelled"
  std::vector<TokenReport> logprobs;  // when asked: one per token
  int steps = 0;                      // sweeps of the target that it took part in
  std::vector<int> step_tokens;       // what each gained; the last may be more than was kept
  std::vector<Seconds> step_ends;     // when each was over, since the generation began
};

/// A shape that trees had from some sweep on; of size 1 where decoding was plain meanwhile.
struct ShapeUsed {
  int from_sweep = 0, size = 0, levels = 0;
};

/// What both links have moved: from disk, and to a device with memory of its own.
struct LinkReport : LinkTotals {
  std::uint64_t upload_bytes = 0;
  Seconds upload_busy{};  // with a copy under way

  LinkReport& operator+=(const LinkReport& more);
  friend LinkReport operator-(const LinkReport& later, const LinkReport& earlier);
};

/// All texts of one call and what they cost together.
struct BatchReport {
  std::vector<GenerateReport> texts;     // one per request, in their order
  int sweeps = 0;                        // of the target
  int tokens = 0;                        // of all texts
  int decode_tokens = 0;                 // those of the sweeps after the first
  Seconds prefill{};                     // the first sweep: prompts and first trees share it
  Seconds decode{};                      // all later ones
  LinkReport link;                       // of decode: what travelled, how long the links were busy
  Seconds compute{}, drafting{};         // of decode: the target's arithmetic, growing trees
  Joules prefill_energy, decode_energy;  // by the meter's counters; empty without one
  std::vector<ShapeUsed> shapes;         // in their order; none for plain decoding
};

/// A step on its way (no new tokens yet), or as it ends: grown, swept, verified.
struct StepProgress {
  int step = 0, new_tokens = 0, total_tokens = 0;
  int texts_done = 0;
  int layer = 0, layers = 0;      // of the target's sweep; the head is behind the last layer
  LinkReport link;                // of this step so far
  Seconds time{}, since_start{};  // likewise; of the generation
  Seconds compute{}, drafting{};  // of the step, once it ends: the target's arithmetic, the trees
};

/// What a caller may watch. `request`: the text's place among the requests.
struct GenerateEvents {
  std::function<void(std::size_t request, TokenId)> on_token;
  std::function<void(std::size_t request, const GenerateReport&)> on_text;  // it is complete
  std::function<void(const StepProgress&)> on_step;  // for each layer of the target and each step
};

/// A measurement of acceptance. Prompts whose cuts are of one text count as one in its errors.
struct AcceptanceRequest {
  std::span<const PromptCut> prompts;
  Sampling sampling;
  std::uint64_t seed = 0;
  int new_tokens = 0;  // of each continuation, unless the model ends it before
};
struct AcceptanceProgress {
  int runs_done = 0;
  std::int64_t positions = 0;  // of all runs
  int sweeps = 0;              // done
  int layer = 0, layers = 0;   // of the one on its way
  Seconds since_start{};
};

/// Owns the device, both models and the plan. One session at a time; one thread.
class Engine {
 public:
  /// Plans first, then loads. Throws Error if the plan does not fit, Stopped on request.
  Engine(ModelFiles models, const EngineOptions& options, const LoadProgress& progress = {},
         std::stop_token stop = {});
  ~Engine();

  const Plan& plan() const;
  const Placement& placement() const;
  const ModelFiles& models() const;
  Seconds load_time() const;
  std::string device_name() const;
  std::uint64_t disk_bytes() const;  // read so far by both models
  const Notes& notes() const;        // every fallback taken, in words for the user

  /// How the link is read, and what that gave when it was tried out: 0 bytes where nothing streams
  /// or the model is small.
  const LinkSample& link_probe() const;

  /// Continues each prompt. As many texts as the plan has caches for share each sweep; when one
  /// ends, the next request takes its place. A stop request ends all within the ring's depth and
  /// keeps what was accepted so far. At temperature 0 the tokens equal plain decoding's; at any
  /// other they are distributed as the target's own. A text depends on its own request alone, where
  /// the device computes a row alike whatever else shares the sweep, as the CPU does. Throws Error
  /// if a prompt does not fit the plan, before anything is run.
  BatchReport generate(std::span<const GenerateRequest> requests, const GenerateEvents& events = {},
                       std::stop_token stop = {});
  GenerateReport generate(const GenerateRequest& request) {
    return std::move(generate({&request, 1}).texts.front());
  }

  /// Continues each prompt by the target's own text, and tells at each position what the rule makes
  /// of the draft's best or drawn children: one for each prompt, in their order. As many share each
  /// sweep as the plan has caches for, a row of the target each. The plan must have been made with
  /// `children`. Throws Stopped on request, Error if a prompt does not fit.
  std::vector<AcceptanceRun> measure_acceptance(
      const AcceptanceRequest& request,
      const std::function<void(const AcceptanceProgress&)>& on_progress = {},
      std::stop_token stop = {});

  using OnUnit = Transformer::OnUnit;
  /// Sum of -log p(token | those before it in its window), and how many: each window of `context`
  /// tokens is scored alone, all but its first token. The plan must have been made with logit_rows
  /// >= context - 1.
  struct Loss {
    double sum = 0;
    std::int64_t tokens = 0;
  };
  Loss loss(std::span<const TokenId> text, int context,
            const std::function<void(const Loss&)>& on_window = {}, const OnUnit& on_unit = {},
            std::stop_token stop = {});

 private:
  friend class Measurement;  // of the hardware
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace canopy
