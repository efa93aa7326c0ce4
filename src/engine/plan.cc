#include "src/engine/plan.h"

#include <algorithm>

#include "offload/streamer.h"
#include "planner/acceptance.h"
#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/engine/target_memory.h"
#include "src/machine/process_memory.h"
#include "src/speculation/model_drafter.h"
#include "src/speculation/verifier.h"

namespace canopy {

namespace {

// The shape that SpecInfer is measured with on models in memory (arXiv:2402.12374, Table 4).
constexpr int kSequences = 5, kSequenceLength = 8;
// Nodes of a graph's tree: the papers give no number; about as many as the planner takes.
constexpr int kGraphNodes = 64;
// A level's nodes that the draft runs for one text.
constexpr int kWidestLevel = 32;
// Chains of BiLD and MTAD where no length is given: the papers' 10, and 4.
constexpr int kRunNodes = 11, kJointNodes = 5;

// What comes on top of everything counted: thread stacks, page tables, the rings of the kernel,
// allocator slack, the text itself. Held against a cgroup's own figure by tests/engine/memory_test.
constexpr std::uint64_t kAllowance = 24u << 20;

// Rows of a sweep that trees of a given size may fill together, where several sequences share it:
// what a model works on at once (Transformer::Limits::chunk).
constexpr int kGivenRows = 256;

// Rows that a target on a device of its own works on at once: each chunk reads (and unpacks) its
// layer's weights again.
constexpr int kRowsOnDevice = 1024;

constexpr double kSafeShare = 0.8;  // the rest is for the page cache and for other programs

Acceptance acceptance_of(const PlanRequest& request) {
  if (request.acceptance) return *request.acceptance;
  if (request.model_free) return typical_acceptance(*request.model_free, request.temperature);
  if (request.heads) return acceptance_of_heads(*request.heads);
  return default_acceptance(request.temperature);
}

/// The numbers of a method's growth, those that its name fixes among them.
Growth growth_for(const PlanRequest& request, SpeculationMethod method) {
  Growth growth = request.growth;
  growth.kind = row_of(method).growth;
  if (method == SpeculationMethod::kTsd || method == SpeculationMethod::kSsd) growth.merge = 0;
  if (method == SpeculationMethod::kSsd) growth.children = 1;
  growth.within_level = method == SpeculationMethod::kGsdSequoia;
  if (growth.kind == Growth::Kind::kConfidence) growth.bound = request.fallback;
  return growth;
}

/// The rule of a plan that is not exact.
std::optional<InexactRule> inexact_rule(const PlanRequest& request, SpeculationMethod method) {
  if (const auto kind = row_of(method).inexact) {
    if (*kind == InexactRule::Kind::kRatio && request.temperature == 0) return std::nullopt;
    InexactRule rule{*kind};  // kRatio has no threshold
    if (*kind == InexactRule::Kind::kJoint) rule.threshold = request.joint_threshold;
    if (*kind == InexactRule::Kind::kRollback) rule.threshold = request.rollback;
    return rule;
  }
  if (request.typical && method != SpeculationMethod::kNone) return request.typical;
  if (method == SpeculationMethod::kNone || request.lenience.value_or(1) == 1) return std::nullopt;
  return InexactRule{InexactRule::Kind::kLenience, *request.lenience};
}

/// When a chain ends before the shape does: a token is worth drawing while its chance of being
/// reached, by tokens of a step, exceeds the time that it adds, by that of a step
/// (docs/math.md, "Chains of adaptive length").
Growth growth_of(Growth growth, const PlannerInput& input, const TreeShape& shape, int sequences) {
  if (growth.kind != Growth::Kind::kReach || input.cost == nullptr || shape.size() == 1)
    return growth;
  const TreeShape half = TreeShape::chain((shape.size() + 1) / 2);
  const auto whole = predict(input, shape, sequences), part = predict(input, half, sequences);
  if (!whole || !part) return growth;
  const Seconds added = (whole->cost.step - part->cost.step) / (shape.size() - half.size());
  growth.bound = std::max(0.0, whole->tokens * (added / whole->cost.step));
  return growth;
}

/// A chain of adaptive length may be twice as long as a fixed one, where that fits.
template <class Fits>
TreeShape lengthened(const TreeShape& chain, int sequences, const Fits& fits) {
  const PlannerInput most;
  const int nodes = std::min({2 * chain.size() - 1, most.max_levels, most.max_nodes / sequences});
  TreeShape longer = TreeShape::chain(std::max(nodes, chain.size()));
  return longer.size() > chain.size() && fits(longer) ? longer : chain;
}

/// The same machine, on which growing a tree takes no time worth counting.
std::shared_ptr<const CostModel> with_free_drafts(const CostModel& cost) {
  const Curve none = Curve::fit(std::array{Sample{0, Seconds(0)}});
  HardwareProfile profile = cost.profile();
  profile.drafting = {none, none, Seconds(0)};
  return std::make_shared<CostModel>(std::move(profile));
}

/// The tree, where nothing is left to choose: a given one, none, or the one shape of a method.
/// `vocab`: tokens that both models know.
std::optional<TreeShape> given_shape(const PlanRequest& request, SpeculationMethod method,
                                     int vocab) {
  if (request.probe) return TreeShape::branching(std::array{std::min(kProbeChildren, vocab)});
  const TreeForm form = row_of(method).form;
  if (form == TreeForm::kNone) return TreeShape();
  if (request.shape) return request.shape;
  if (form == TreeForm::kChain && request.tree_size != 0)
    return TreeShape::chain(request.tree_size);
  // A chain of as many nodes, as the draft's rows decide what becomes of them.
  if (form == TreeForm::kGraph)
    return TreeShape::chain(request.tree_size != 0 ? request.tree_size : kGraphNodes);
  if (method == SpeculationMethod::kBild) return TreeShape::chain(kRunNodes);
  if (method == SpeculationMethod::kMtad) return TreeShape::chain(kJointNodes);
  if (form == TreeForm::kSequences) return TreeShape::sequences(kSequences, kSequenceLength);
  if (request.tree_size != 0 && request.tree_levels != 0)
    return best_tree(request.tree_size, request.tree_levels, acceptance_of(request));
  return std::nullopt;
}

std::uint64_t sum_of(const std::vector<LedgerEntry>& ledger) {
  std::uint64_t sum = 0;
  for (const LedgerEntry& entry : ledger) sum += entry.bytes;
  return sum;
}

/// A draft, as every plan that has one sees it.
struct DraftModel {
  const ModelConfig& config;
  std::uint64_t weight_bytes;

  static std::optional<DraftModel> of(const std::optional<SweepLayout>& sweep, bool on_device) {
    if (!sweep) return std::nullopt;
    return DraftModel{sweep->config,
                      on_device ? device_resident_bytes(*sweep) : resident_bytes(*sweep)};
  }
};
struct DraftModels {
  std::optional<DraftModel> outer, inner;  // inner: of a hierarchy
};

/// What a growth takes of the buffers where its levels are not the shape's; else nothing.
DraftPolicy::Needs needs_of(const DraftPolicy::Config& config) {
  const int nodes = config.shape.size();
  if (config.growth.kind == Growth::Kind::kGraph)
    return {nodes, nodes, std::min(nodes, kWidestLevel), nodes};
  if (config.growth.kind == Growth::Kind::kBeams)
    return {nodes, config.growth.beams * (nodes - 1), config.growth.beams, nodes};
  if (config.growth.kind == Growth::Kind::kHierarchy) {  // every guess may be wrong
    const int asked = config.growth.guesses + 1;
    return {nodes, asked * (nodes - 1) + 1, asked, nodes};
  }
  return {};
}

/// Everything but the target's weights, for `sequences` trees that share a sweep.
Plan lay_out(const PlanRequest& request, SpeculationMethod method, bool adaptive,
             const TreeShape& shape, int sequences, const ModelConfig& t, const DraftModels& models,
             std::uint64_t process_bytes, const ScratchBytes& scratch_bytes) {
  const std::optional<DraftModel>& draft = models.outer;
  Plan plan;
  plan.memory = request.memory;
  const DType kv = request.kv.value_or(request.device_memory ? DType::kF16 : DType::kF32);
  plan.kv = {kv, kv};
  plan.method = method;
  plan.max_sequences = sequences;
  plan.max_prompt = request.max_prompt;
  plan.probe = request.probe;
  plan.beams = request.beams;
  plan.policy.shape = shape;
  plan.policy.drawing = request.drafts_without_model()
                            ? Drawing::kTopK
                            : drawing_of(plan.method, request.temperature);
  plan.policy.growth = growth_for(request, plan.method);
  plan.inner = request.inner;
  plan.policy.max_requests = sequences;
  plan.policy.graphs = request.graphs;
  if (adaptive && shape.size() > 1) {
    // For trees of other depths that the text may ask for later.
    const auto more = [](int count) { return count + count / 4 + 4; };
    const DraftPolicy::Needs own = DraftPolicy::needs(shape);
    plan.policy.room = {own.nodes, std::min(own.nodes, more(own.inner)),
                        std::min(own.nodes, more(own.widest)), 16 * own.nodes};
  }
  if (const DraftPolicy::Needs needs = needs_of(plan.policy); needs.nodes > 0)
    plan.policy.room = needs;
  const int nodes = request.beams   ? request.beams->nodes()  // that a model runs
                    : request.probe ? 1
                                    : plan.policy.shape.size();
  // The draft may run nodes that are not in its tree.
  const int scratch_nodes = std::max(nodes, plan.policy.room.inner);
  plan.context = request.context;
  // A text that is alone may have the nodes of all.
  plan.slots = request.context + (adaptive ? sequences * nodes : scratch_nodes);
  const int prompt_rows = sequences * request.max_prompt;
  const int prompt_rows_of_sweep =
      request.prompt_rows > 0 ? std::min(request.prompt_rows, prompt_rows) : prompt_rows;
  plan.target_limits.max_nodes = prompt_rows_of_sweep + sequences * nodes;
  if (request.device_memory) plan.target_limits.chunk = kRowsOnDevice;
  plan.target_limits.max_tree = sequences * nodes;
  plan.target_limits.max_logit_rows = request.beams
                                          ? request.beams->beams + request.beams->drafted()
                                          : std::max(sequences * nodes, request.logit_rows);
  plan.target_limits.max_context = plan.slots;

  const int full_texts =
      request.full_texts > 0 ? std::min(request.full_texts, sequences) : sequences;
  plan.kv_blocks = full_texts * KvPool::blocks_for(plan.slots);
  const bool speculates = plan.method != SpeculationMethod::kNone;
  const bool drafts = (speculates || request.beams) && draft.has_value();
  const bool guesses = takes_inner_draft(plan.method) && models.inner.has_value();
  if (request.kv_memory) {
    std::uint64_t block = KvPool::bytes_needed(t, 1, plan.kv);
    if (drafts) block += KvPool::bytes_needed(draft->config, 1, plan.kv);
    if (guesses) block += KvPool::bytes_needed(models.inner->config, 1, plan.kv);
    const std::uint64_t given = *request.kv_memory / block;
    if (given < static_cast<std::uint64_t>(KvPool::blocks_for(plan.slots)))
      throw Error("the memory for keys and values, " + format_size(*request.kv_memory) +
                  ", is too small: one text of " + std::to_string(request.context) +
                  " tokens and its tree take " +
                  format_size(block * static_cast<std::uint64_t>(KvPool::blocks_for(plan.slots))));
    plan.kv_blocks = static_cast<int>(std::min<std::uint64_t>(
        given, static_cast<std::uint64_t>(sequences * KvPool::blocks_for(plan.slots))));
  }
  const auto pool = [&](const std::string& whose) {
    return whose + " KV cache, " + std::to_string(plan.kv_blocks * kKvBlock) + " slots";
  };
  const auto pool_bytes = [&](const ModelConfig& config) {
    return KvPool::bytes_needed(config, plan.kv_blocks, plan.kv) +
           static_cast<std::uint64_t>(sequences) * KvCache::bytes_needed(plan.slots);
  };
  const std::uint64_t pool_allocations =
      KvPool::kAllocations + static_cast<std::uint64_t>(sequences) * KvCache::kAllocations;
  plan.ledger.push_back({"the process as it stands: code, libraries, tokenizer", process_bytes});
  plan.ledger.push_back({"allowance: thread stacks, page tables, text", kAllowance});
  if (request.beside > 0)
    plan.ledger.push_back({"beside the engine: connections, requests, rows", request.beside});
  if (request.device_memory) {
    Plan::DevicePart device;
    device.memory = *request.device_memory;
    plan.device = std::move(device);
  }
  if (speculates && request.model_free) {
    plan.model_free = request.model_free;
    plan.policy.vocab = t.vocab;
    plan.ledger.push_back({"draft " + name(*plan.model_free) + ": what it counts and finds",
                           ModelFreeDrafter::host_bytes(*plan.model_free, t.vocab, plan.slots)});
  }
  auto& ledger = plan.device ? plan.device->ledger : plan.ledger;
  // A device gives whole units of its memory to each of so many allocations.
  const auto enter = [&](std::string what, std::uint64_t bytes, std::uint64_t allocations) {
    if (plan.device)
      bytes = request.driver.whole_units(bytes) + (allocations - 1) * request.driver.unit;
    ledger.push_back({std::move(what), bytes});
  };
  std::size_t scratch = scratch_bytes(Transformer::workload(t, plan.target_limits));
  if (speculates && request.heads) {
    plan.heads = request.heads;
    plan.policy.vocab = t.vocab;
    const HeadDrafter::Limits limits = plan.head_limits(t);
    enter("heads", plan.heads->weight_bytes, 1);
    enter("heads' values and logits", HeadDrafter::device_bytes(plan.heads->heads, limits),
          HeadDrafter::kAllocations);
    scratch = std::max(scratch, scratch_bytes(HeadDrafter::workload(plan.heads->heads, limits)));
  }
  const auto enter_draft = [&](const std::string& whose, const DraftModel& model,
                               const Transformer::Limits& limits) {
    enter(whose + " weights", model.weight_bytes, 2);
    enter(pool(whose), pool_bytes(model.config), pool_allocations);
    enter(whose + " activations and logits", Transformer::activation_bytes(model.config, limits),
          Transformer::kAllocations);
    scratch = std::max(scratch, scratch_bytes(Transformer::workload(model.config, limits)));
  };
  if (drafts) {
    const ModelConfig& d = draft->config;
    plan.policy.vocab = std::min(t.vocab, d.vocab);
    plan.policy.edited_context = plan.slots;
    plan.policy.edited_vocab = std::max(t.vocab, d.vocab);
    plan.draft_limits.max_logit_rows =
        request.beams ? std::max(request.beams->beams, request.beams->draft_beams)
                      : DraftPolicy::widest_forward(plan.policy);
    plan.draft_limits.max_nodes = request.beams
                                      ? plan.target_limits.max_nodes
                                      : std::max(prompt_rows_of_sweep, sequences * scratch_nodes);
    plan.draft_limits.max_tree = sequences * scratch_nodes;
    plan.draft_limits.max_context = plan.slots;
    if (plan.inner)
      plan.ledger.push_back(
          {"draft's draft " + name(*plan.inner) + ": what it counts and finds",
           ModelFreeDrafter::host_bytes(*plan.inner, std::max(t.vocab, d.vocab), plan.slots)});
    enter_draft("draft", *draft, plan.draft_limits);
    if (!request.beams)
      enter("draft probabilities", ModelDrafter::policy_bytes(plan.policy),
            DraftPolicy::kAllocations);
  }
  if (guesses) {
    plan.inner_policy.shape = TreeShape::chain(plan.policy.growth.guesses + 1);
    plan.inner_policy.vocab = std::min(plan.policy.vocab, models.inner->config.vocab);
    plan.inner_limits = plan.draft_limits;
    plan.inner_limits.max_logit_rows = DraftPolicy::widest_forward(plan.inner_policy);
    enter_draft("draft's draft", *models.inner, plan.inner_limits);
    enter("draft's draft: proposals", DraftPolicy::device_bytes(plan.inner_policy),
          DraftPolicy::kAllocations);
  }
  enter(pool("target"), pool_bytes(t), pool_allocations);
  enter("target activations and logits", Transformer::activation_bytes(t, plan.target_limits),
        Transformer::kAllocations);
  enter("verification", Verifier::device_bytes(t.vocab, plan.slots), Verifier::kAllocations);
  enter("scratch of the kernels", scratch, 1);
  return plan;
}

}  // namespace

std::uint64_t Plan::total() const { return sum_of(ledger); }
std::optional<std::string> Plan::changes() const {
  if (inexact) return in_words(*inexact);
  if (beams && beams->joint > 0)
    return "joint decoding: of each " + std::to_string(beams->joint) +
           " tokens those that are likeliest together, as far as " + std::to_string(beams->beams) +
           " beams find them";
  return std::nullopt;
}
HeadDrafter::Limits Plan::head_limits(const ModelConfig& target) const {
  return {target.dim, target.vocab, policy.shape.size(), max_sequences};
}
std::uint64_t Plan::DevicePart::total() const { return sum_of(ledger); }

std::uint64_t safe_memory() {
  return resident_memory() +
         static_cast<std::uint64_t>(kSafeShare * static_cast<double>(system_memory().free()));
}

PlanRequest on_device(PlanRequest request, const Device& device) {
  if (request.memory == 0) request.memory = safe_memory();
  if (!device.shares_host_memory()) {
    if (!request.device_memory) request.device_memory = device.free_bytes();
    request.driver = device.driver_share();
  }
  return request;
}

PlanRequest on_machine(PlanRequest request, const HardwareProfile& machine) {
  const auto known = [](std::uint64_t bytes, const char* what, const char* flag) {
    if (bytes == 0)
      throw Error(std::string("the profile does not say how much memory its ") + what +
                  " has: give " + flag);
    return bytes;
  };
  if (request.memory == 0)
    request.memory = static_cast<std::uint64_t>(
        kSafeShare * static_cast<double>(known(machine.memory_bytes, "machine", "--memory")));
  if (machine.of_gpu() && !request.device_memory)
    request.device_memory = known(machine.gpu_memory_bytes, "GPU", "--gpu-memory");
  return request;
}

ScratchBytes scratch_of(Device& device) {
  return [&ops = device.ops()](const Workload& largest) { return ops.scratch_bytes(largest); };
}

Plan with_ring(Plan plan, std::uint64_t bytes) {
  plan.ring_layers *= static_cast<double>(bytes) / static_cast<double>(plan.ring_bytes);
  plan.ring_bytes = plan.weights.ring_bytes = bytes;
  for (LedgerEntry& entry : plan.device->ledger)
    if (entry.what == kRingEntry) entry.bytes = bytes;
  return plan;
}

void require_free(const Plan& plan, std::uint64_t process_bytes) {
  const std::uint64_t free = system_memory().free();
  if (plan.total() <= process_bytes + free) return;
  throw Error("the plan takes " + std::to_string((plan.total() - process_bytes) >> 20) +
              " MiB more, but this machine, or a memory cgroup of this process, has only " +
              std::to_string(free >> 20) + " MiB free: give a memory budget of at most " +
              std::to_string((process_bytes + free) >> 20) + "M, or free some");
}

namespace {

/// A learned position is a row of a table: there are none behind the last.
void require_positions(const SweepLayout& sweep, const char* whose, int context) {
  const ModelConfig& config = sweep.config;
  if (config.form.positions == PositionKind::kLearned && context > config.max_positions)
    throw Error("a context of " + std::to_string(context) + " tokens is beyond the " +
                std::to_string(config.max_positions) + " positions that the " + whose +
                " has learned");
}

}  // namespace

ModelSweeps lay_out_models(const Checkpoint& target, const std::optional<Checkpoint>& draft,
                           const std::optional<Checkpoint>& inner) {
  ModelSweeps models{lay_out_sweep(target), std::nullopt, std::nullopt};
  if (draft) models.draft = lay_out_sweep(*draft);
  if (inner) models.inner = lay_out_sweep(*inner);
  return models;
}

Plan make_plan(const PlanRequest& asked_for, const ModelSweeps& models, std::uint64_t process_bytes,
               const ScratchBytes& scratch_bytes) {
  const SweepLayout& target = models.target;
  const std::optional<SweepLayout>& draft = models.draft;
  const TargetMemory weights(target);
  PlanRequest request = asked_for;
  if (request.resident_layers) request.resident = weights.bytes_of_layers(*request.resident_layers);
  require(request.max_sequences >= 1, "a plan is for at least one sequence");
  require_positions(target, "model", request.context);
  if (draft) require_positions(*draft, "draft", request.context);
  if (models.inner) require_positions(*models.inner, "draft's draft", request.context);
  require(draft.has_value() + request.model_free.has_value() + request.heads.has_value() <= 1,
          "a plan is for one draft: a model, heads, or none of both");
  const bool can_draft = draft || request.drafts_without_model();
  const SpeculationMethod asked =
      (request.method == SpeculationMethod::kAuto && !can_draft) || request.beams
          ? SpeculationMethod::kNone
          : request.method;
  if (asked != SpeculationMethod::kNone && !can_draft)
    throw Error("speculation (" + std::string(name(asked)) + ") needs a draft model");
  if (request.drafts_without_model() && !works_without_model(asked))
    throw Error("speculation (" + std::string(name(asked)) +
                ") draws from a draft model's probabilities, and " +
                (request.heads ? "heads have" : name(*request.model_free) + " has") + " none");
  if (request.heads) {
    require(!request.probe, "acceptance of heads is measured where they are trained");
    const int levels = request.heads->heads + 1;
    if ((request.shape && request.shape->levels() > levels) || request.tree_levels > levels ||
        (row_of(asked).form == TreeForm::kChain && request.tree_size > levels))
      throw Error("a tree of more than " + std::to_string(levels) + " levels: there are " +
                  std::to_string(request.heads->heads) + " heads, for a level each");
    if (request.tree_levels == 0) request.tree_levels = levels;
  }
  require(!request.typical || request.heads, "typical acceptance is of what heads propose");
  if (takes_inner_draft(asked) ? request.inner.has_value() == models.inner.has_value()
                               : request.inner.has_value())
    throw Error("a second draft is for speculation by a hierarchy, which needs one");
  if (request.lenience && asked != SpeculationMethod::kNone &&
      (request.drafts_without_model() || !takes_lenience(asked)))
    throw Error(
        "lenience is of tokens that were drawn from a draft model and are tried one by one: "
        "not of speculation (" +
        std::string(name(asked)) + ")");
  if (request.drafts_without_model() && request.cost)
    request.cost = with_free_drafts(*request.cost);
  require(!request.probe || asked != SpeculationMethod::kNone,
          "acceptance is measured of a draft and a target");
  const std::optional<TreeShape> given =
      given_shape(request, asked,
                  draft ? std::min(target.config.vocab, draft->config.vocab) : target.config.vocab);
  const auto spec_of = [&](const TreeShape& shape) {
    if (asked != SpeculationMethod::kAuto) return asked;
    return shape.size() == 1                ? SpeculationMethod::kNone
           : shape.levels() == shape.size() ? SpeculationMethod::kChain
           : request.drafts_without_model() ? SpeculationMethod::kTopK
                                            : SpeculationMethod::kSequoia;
  };
  const bool on_device = request.device_memory.has_value();
  const DraftModels drafts{DraftModel::of(draft, on_device),  // once: hundreds of shapes are tried
                           DraftModel::of(models.inner, on_device)};
  const auto beside = [&](const TreeShape& shape, int sequences) {
    Plan plan = lay_out(request, spec_of(shape), !given && request.tree_size == 0, shape, sequences,
                        target.config, drafts, process_bytes, scratch_bytes);
    if (plan.device) weights.enter_driver(plan, request);
    return plan;
  };
  const auto place = [&](const Plan& plan, std::uint64_t ring) {
    return weights.place(plan, request, ring);
  };

  PlannerInput input;
  input.cost = request.cost.get();
  input.acceptance = acceptance_of(request);
  input.sampled = request.temperature > 0;
  input.context = 0.5 * (request.max_prompt + request.context);
  input.sequences = request.max_sequences;
  input.nodes = request.tree_size;
  if (request.tree_levels != 0) input.max_levels = request.tree_levels;
  input.plain = asked == SpeculationMethod::kAuto;
  const bool chain = row_of(asked).form == TreeForm::kChain;
  input.chains = asked == SpeculationMethod::kAuto || chain;
  input.trees = !chain;
  input.lay_out = [&](const TreeShape& shape, int sequences,
                      std::uint64_t ring) -> std::optional<WeightPlan> {
    const auto placed = place(beside(shape, sequences), ring);
    if (!placed) return std::nullopt;
    return weights.seen(*placed, request.device_memory.has_value());
  };

  std::optional<Choice> choice;
  TreeShape shape;
  int sequences = 1;
  if (given) {
    shape = *given;
    sequences = request.probe ? request.max_sequences
                              : std::clamp(kGivenRows / shape.size(), 1, request.max_sequences);
    while (sequences > 1 && !place(beside(shape, sequences), 0)) --sequences;
    // Nothing is predicted of trees that are not of a shape.
    if (input.cost != nullptr && row_of(asked).growth != Growth::Kind::kGraph &&
        row_of(asked).growth != Growth::Kind::kBeams && !row_of(asked).inexact)
      if (auto candidate = predict(input, shape, sequences)) choice = {{std::move(*candidate)}, {}};
  } else {
    require(input.cost != nullptr, "to choose a tree takes a profile of the machine");
    choice = choose(input);
    if (choice) {
      shape = choice->best.shape;
      sequences = choice->best.sequences;
    } else if (asked != SpeculationMethod::kAuto) {
      shape = TreeShape::chain(2);  // the least there is; it says what is missing
    }
  }
  const Growth growth = growth_of(growth_for(request, asked), input, shape, sequences);
  if (growth.kind == Growth::Kind::kReach && !given && request.tree_size == 0)
    shape = lengthened(shape, sequences, [&](const TreeShape& longer) {
      return place(beside(longer, sequences), 0).has_value();
    });
  Plan plan = beside(shape, sequences);
  plan.policy.growth = growth;
  plan.inexact = inexact_rule(request, plan.method);
  const auto placed = place(plan, choice ? choice->best.ring_wish : 0);
  if (!placed) weights.refuse(std::move(plan), request);
  weights.enter(plan, *placed);
  plan.acceptance = input.acceptance;
  plan.cost = request.cost;
  plan.weights = weights.seen(*placed, plan.device.has_value());
  plan.rows_behind_link = kGivenRows;  // where nothing travels, or nothing was measured
  if (plan.cost)
    plan.rows_behind_link =
        plan.cost->rows_behind_link(plan.weights, input.context).value_or(kGivenRows);
  // Texts teach how often the shape's tokens are accepted, not those of what a growth left of it.
  plan.adaptive =
      !given && request.tree_size == 0 && shape.size() > 1 && growth.kind == Growth::Kind::kShape;
  plan.prediction = std::move(choice);
  return plan;
}

}  // namespace canopy
