#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "include/canopy/budget_error.h"
#include "offload/residency.h"
#include "planner/experts/learned_routes.h"
#include "planner/planner.h"
#include "src/base/error.h"
#include "src/base/notes.h"
#include "src/checkpoint/checkpoint.h"
#include "src/speculation/growers/shape_grower.h"
#include "src/speculation/speculation.h"

namespace canopy {

/// The paper's figures of acceptance go up to about as many.
inline constexpr int kProbeChildren = 32;

/// Tokens of a text that is not a full one, in the KV pools.
inline constexpr int kShortText = 512;
inline constexpr const char* kRingEntry = "target ring";          // of the ledger
inline constexpr const char* kExpertCacheEntry = "expert cache";  // how its entry begins
/// One line of the memory budget.
struct LedgerEntry {
  std::string what;
  std::uint64_t bytes = 0;
};

/// Most that a beam search may run at a time. Plain data.
struct BeamRoom {
  int beams = 1;                    // of the target
  int draft_beams = 0, levels = 0;  // of the draft, and how far it goes ahead; 0: without one
  int tokens = 0;                   // of a text, after its prompt
  int joint = 0;                    // as BeamSet::Limits::joint

  BeamRoom with_tokens(int count) const { return {beams, draft_beams, levels, count, joint}; }
  /// Most nodes of a sweep: the root, all that the beams may not share, what is drafted.
  int nodes() const {
    return 1 + beams * (joint > 0 ? std::min(joint, tokens) : tokens) + drafted();
  }
  int drafted() const { return draft_beams * levels; }
};

/// Choices of an engine, whatever memory its process has: all that several processes which share a
/// model's rows would have to agree on. Plain data.
struct Decisions {
  SpeculationMethod method = SpeculationMethod::kNone;
  ShapeGrower::Config policy;                // its shape is the root alone for kNone
  std::shared_ptr<const DraftSource> draft;  // what drafts in place of a model
  std::shared_ptr<const DraftSource> inner;  // of a hierarchy: what guesses in place of a model
  ShapeGrower::Config inner_policy;          // of a second draft model, its shape as above
  std::optional<InexactRule> inexact;        // texts are not exactly the target's
  std::optional<BeamRoom> beams;             // a beam search, in place of all that
  KvTypes kv;
  Transformer::Limits target_limits, draft_limits, inner_limits;
  int max_sequences = 1;            // that can share a sweep, each with KV caches of its own
  int max_prompt = 0, context = 0;  // tokens
  int rows_behind_link = 0;         // of a sweep: more than these hold it up
  double priced_context = 0;        // tokens of text, that its steps are predicted with
  bool probe = false;               // acceptance is measured: the target runs roots alone
  int slots = 0;                    // most of a KV cache: the text and then the tree
  int kv_blocks = 0;                // of each model's KV pool, for all sequences
  int snapshots = 0;                // of recurrent layers' states, of each model, for texts to come
  int expected_blocks = 0;  // of these, in use while texts are as many and as long as is priced
  bool adaptive = false;    // the tree was chosen, with room for others: it may follow the texts
  Acceptance acceptance;    // that it was made with
  Calibrated calibrated;    // of valued trees: what was known of the pair
  WeightPlan weights;       // where the target's units lie, as the planner sees it
  std::uint64_t ring_wish = 0;            // bytes of the target's ring, if that can be
  std::shared_ptr<const CostModel> cost;  // that it was made with; may be none
  /// Figures that are predicted, and what else was considered, if a tree was to be chosen. Nothing
  /// without a cost model.
  std::optional<Choice> prediction;

  /// Says what makes its texts other than the model's own, in words for the user; nothing: they are
  /// exact.
  std::optional<std::string> changes() const;
  KvRoom kv_room() const { return {kv_blocks, slots, kv, slots - context, snapshots}; }
  /// Bounds of `draft` and `inner`.
  DraftBounds draft_bounds(const ModelConfig& target) const;
  DraftBounds inner_bounds() const;
};

/// Places of everything in the memory of one process. Plain data.
struct MemoryPlan {
  std::uint64_t memory = 0;  // the budget of the process
  std::vector<LedgerEntry> ledger;
  std::uint64_t total() const;
  bool resident = false;             // the whole target stays in memory; nothing is streamed
  Residency residency;               // of the target's units otherwise
  std::uint64_t resident_bytes = 0;  // target weights that stay where they are computed with
  std::uint64_t sweep_bytes = 0;     // target weights that are read from disk in every sweep
  std::uint64_t ring_bytes = 0;      // in transit to where they are computed with
  double resident_layers = 0, ring_layers = 0;  // the same, in layers of this model
  /// Slots of experts that are read when rows choose them: then `residency` is of a layout with
  /// experts apart, and `resident_bytes` counts those that stay. 0: experts are in their layers'
  /// units.
  std::size_t expert_slots = 0;
  /// Texts and resident weights share this memory where it is not 0
  /// (src/engine/pool/memory_pool.h): the KV pools, which the ledger has as if they were full, and
  /// the units or experts that may go. Then `residency` and `expert_slots` are those of the texts
  /// that are expected, and the others those with full pools.
  std::uint64_t pool_bytes = 0;
  std::optional<Residency> full_residency;
  std::size_t full_expert_slots = 0, most_expert_slots = 0;  // with full pools; with empty ones
  std::uint64_t full_resident_bytes = 0, full_sweep_bytes = 0;
  /// Bytes of the KV pools that can give memory back, and of these those that no expected text
  /// takes.
  std::uint64_t kv_bytes = 0, idle_kv_bytes = 0;
  /// A device with memory of its own has that budget and these weights; the ring above
  /// is there, and the host has its own where some are read from disk.
  struct DevicePart {
    std::uint64_t memory = 0;
    std::vector<LedgerEntry> ledger;
    std::uint64_t total() const;
    std::uint64_t upload_bytes = 0;  // target weights that go to the device in every sweep
    std::uint64_t host_bytes = 0;    // of those, what stays in host memory
    std::uint64_t host_ring_bytes = 0;
    // Slots of the host's cache of experts, where its memory does not hold all of them; else 0.
    std::size_t host_expert_slots = 0;
  };
  std::optional<DevicePart> device;
};

/// Both, for a process that decides alone.
struct Plan : Decisions, MemoryPlan {
  /// Parts of the request that had to give way, with what they would take, in words for the user.
  Notes notes;
};

/// A wish for a plan: how to speculate, for which texts, in how much memory.
struct PlanRequest : Speculation {
  std::uint64_t memory = 0;                    // bytes for the whole process
  std::optional<std::uint64_t> device_memory;  // bytes of a device that has memory of its own
  DriverShare driver = kGpuDriver;             // what its driver takes of them
  std::shared_ptr<const CostModel> cost;       // of these models on this machine, to choose a tree
  std::optional<Acceptance> acceptance;        // measured; else what a self-draft has
  Calibrated calibrated;                       // of valued trees: what is known of the pair
  LearnedRoutes routes;                        // of a mixture
  int max_prompt = 0, context = 0;             // tokens
  int prompt_rows = 0;  // most of all prompts together in one sweep; 0: all there are
  std::uint64_t reserved_bytes =
      0;                // bytes that the program itself takes: clients' connections, say
  int full_texts = 0;   // that the KV pools have room for, next to short ones; 0: all are full
  int priced_text = 0;  // tokens of a text whose step is predicted; 0: in the middle of the request
  /// Acceptance is to be measured: the draft proposes kProbeChildren at each position, or as many
  /// tokens as both models know, and the target runs none of them.
  bool probe = false;
  int logit_rows = 0;             // most rows of target logits next to the tree's (perplexity)
  std::optional<BeamRoom> beams;  // a beam search, which takes no method
  double temperature = 0;
  int max_sequences = 1;  // that may share a sweep; the plan may have room for fewer
  int least_sequences = 1;
  /// Texts whose seconds per token are to be the fewest. 0: all are there from the beginning, so
  /// that fewer of them share a sweep where that is faster. Else they come and go, and have their
  /// places as long as memory lasts.
  int texts = 0;
  int least_context = 0;  // tokens that the context may be cut to where memory is short; 0: none
  bool graphs = false;    // the draft's levels are captured and launched as one
  /// The default is f32, or f16 on a device with memory of its own: there a cache takes the place
  /// of weights that would stay, and reading it is what attention waits for.
  std::optional<DType> kv;
  std::optional<std::uint64_t> kv_memory;  // bytes of both pools; else every text can be full
  /// Texts that come later begin with what earlier ones have read: of recurrent layers this takes
  /// snapshots.
  bool reuses_texts = false;
  /// Bytes of target weights that stay where they are computed with; without a value as many as fit
  /// next to a small ring: a byte at rest saves its reading in every sweep, a byte of the ring at
  /// most as much, and only while the ring can fill (docs/math.md, "A byte at rest or a byte in the
  /// ring"). Of the others as many as fit rest in host memory; none, to measure the disk.
  std::optional<std::uint64_t> resident;
  std::optional<int> resident_layers;  // the same, in layers of this model
  bool from_disk = false;
  /// Resident weights may give way to texts. Not with several processes: each would have to know
  /// the others' texts.
  bool may_share_memory = true;
};

/// Plans for texts that come and go, of any length up to the context: one text is to be fast, long
/// prompts take several sweeps, the pools have room for a full one next to short ones, and a
/// context that nobody asked for may give way where memory is short.
void plan_for_conversations(PlanRequest& request, bool context_is_asked_for);

/// The models as they are swept: laid out once, for the plan, the sources of weights and sizes.
struct ModelSweeps {
  SweepLayout target;
  std::optional<SweepLayout> apart;         // the target with its experts apart, if it is a mixture
  std::optional<SweepLayout> draft, inner;  // inner: of a hierarchy
};
/// `share`: of the target's rows, of which this process has some or all; a draft is whole.
ModelSweeps lay_out_models(const Checkpoint& target, const std::optional<Checkpoint>& draft,
                           const std::optional<Checkpoint>& inner = std::nullopt,
                           const Share& share = {});

/// Returns what a process may take when nobody names a budget: what it holds and most of what is
/// free, and no more than its memory cgroup may. Bytes.
std::uint64_t safe_memory();
/// The request on this device: budgets that nobody named are what is safe, or all of a GPU.
PlanRequest on_device(PlanRequest request, const Device& device);
/// The same on a machine that is known by its profile alone. Throws Error if that does not say how
/// much memory there is where the request leaves it open.
PlanRequest on_machine(PlanRequest request, const HardwareProfile& machine);

/// The plan with a smaller ring on the device, or with fewer slots of its expert cache, of those
/// that it has with full KV pools: where its driver leaves less than it reported.
Plan with_ring(Plan plan, std::uint64_t bytes);
Plan with_expert_slots(Plan plan, std::size_t slots);

/// Throws Error, with what is free, if this machine has not what the plan takes beyond what the
/// process holds already.
void require_free(const Plan& plan, std::uint64_t process_bytes);

/// Bytes of scratch that the kernels need for calls up to `largest`: Ops::scratch_bytes, or, for a
/// GPU that is not here, gpu_scratch_bytes.
using ScratchBytes = std::function<std::size_t(const Workload& largest)>;
/// Asks a device that is here, and outlives the answer.
ScratchBytes scratch_of(Device& device);

/// Lays the budget out before any weight is read: everything that must be there, for as many
/// sequences as fit next to the least that the target can do with, then the whole target if it
/// fits, else resident weights and a ring for the others, or for experts a cache. What the request
/// leaves open, tree, sequences and ring, is chosen for the fewest predicted seconds per token.
/// Where memory is short and the request allows it, the context gives way first, then the places of
/// texts that come and go, then the draft; Plan::notes says so. `process_bytes` is what the process
/// holds already. Throws BudgetError; Error if a tree is to be chosen and there is no cost model.
Plan make_plan(const PlanRequest& request, const ModelSweeps& models, std::uint64_t process_bytes,
               const ScratchBytes& scratch_bytes);

/// The memory plan of a process that does what was decided, perhaps for less memory than the
/// request's: everything that must be there, then weights. Throws BudgetError.
MemoryPlan plan_memory(const Decisions& decisions, const PlanRequest& request,
                       const ModelSweeps& models, std::uint64_t process_bytes,
                       const ScratchBytes& scratch_bytes);

}  // namespace canopy
