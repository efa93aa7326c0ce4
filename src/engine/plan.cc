#include "src/engine/plan.h"

#include <algorithm>

#include "planner/acceptance.h"
#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/engine/plan_layout.h"
#include "src/engine/target_memory.h"
#include "src/machine/process_memory.h"

namespace canopy {

namespace {

// The shape that SpecInfer is measured with on models in memory (arXiv:2402.12374, Table 4).
constexpr int kSequences = 5, kSequenceLength = 8;
// Nodes of a graph's tree: the papers give no number; about as many as the planner takes.
constexpr int kGraphNodes = 64;
// Chains of BiLD and MTAD where no length is given: the papers' 10, and 4.
constexpr int kRunNodes = 11, kJointNodes = 5;

// Rows of a sweep that trees of a given size may fill together, where several sequences share it:
// what a model works on at once (Transformer::Limits::chunk).
constexpr int kGivenRows = 256;

constexpr double kSafeShare = 0.8;  // the rest is for the page cache and for other programs

Acceptance acceptance_of(const PlanRequest& request) {
  if (request.acceptance) return *request.acceptance;
  if (request.model_free) return typical_acceptance(*request.model_free, request.temperature);
  if (request.heads) return acceptance_of_heads(*request.heads);
  return default_acceptance(request.temperature);
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
  return {heads->dim, target.vocab, policy.shape.size(), max_sequences};
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

namespace {

/// The method, where the request alone decides it.
SpeculationMethod method_of(const PlanRequest& request, bool can_draft) {
  if (request.beams) return SpeculationMethod::kNone;
  if (request.method == SpeculationMethod::kAuto && !can_draft) return SpeculationMethod::kNone;
  return request.method;
}

void check_heads(const PlanRequest& request, SpeculationMethod method) {
  require(!request.typical || request.heads, "typical acceptance is of what heads propose");
  if (!request.heads) return;
  require(!request.probe, "acceptance of heads is measured where they are trained");
  const int levels = request.heads->heads + 1;
  if ((request.shape && request.shape->levels() > levels) || request.tree_levels > levels ||
      (row_of(method).form == TreeForm::kChain && request.tree_size > levels))
    throw Error("a tree of more than " + std::to_string(levels) + " levels: there are " +
                std::to_string(request.heads->heads) + " heads, for a level each");
}

/// A first level has no more beams than there are tokens. Throws Error.
void check_beams(const PlanRequest& request, SpeculationMethod method, const ModelSweeps& models) {
  int tokens = models.target.config.vocab;
  const auto check = [&](int beams, const char* whose, const char* flag) {
    if (beams > tokens)
      throw Error(std::to_string(beams) + " beams of the " + whose + ": there are " +
                  std::to_string(tokens) + " tokens; give " + flag + " at most that");
  };
  if (request.beams) check(request.beams->beams, "model", "--num-beams");
  if (models.draft) tokens = std::min(tokens, models.draft->config.vocab);
  if (request.beams) check(request.beams->draft_beams, "draft", "--draft-beams");
  if (row_of(method).growth == Growth::Kind::kBeams)
    check(request.growth.beams, "draft", "--beams");
}

/// Throws Error where the request contradicts itself, or asks for what these models cannot do.
void check(const PlanRequest& request, SpeculationMethod method, const ModelSweeps& models) {
  require(request.max_sequences >= 1, "a plan is for at least one sequence");
  require_positions(models.target, "model", request.context);
  if (models.draft) require_positions(*models.draft, "draft", request.context);
  if (models.inner) require_positions(*models.inner, "draft's draft", request.context);
  require(
      models.draft.has_value() + request.model_free.has_value() + request.heads.has_value() <= 1,
      "a plan is for one draft: a model, heads, or none of both");
  const auto speculation = [&] { return "speculation (" + std::string(name(method)) + ")"; };
  const bool drafts = method != SpeculationMethod::kNone;
  const bool has_draft = models.draft || request.drafts_without_model();
  if (drafts_with_itself(method) && has_draft)
    throw Error(speculation() + " drafts with the model itself: it takes no other draft");
  if (drafts_with_itself(method) && models.target.config.layers < 2)
    throw Error(speculation() + " leaves layers out, and the model has only one");
  if (drafts && !has_draft && !drafts_with_itself(method))
    throw Error(speculation() + " needs a draft model");
  if (request.drafts_without_model() && !works_without_model(method))
    throw Error(speculation() + " draws from a draft model's probabilities, and " +
                (request.heads ? "heads have" : name(*request.model_free) + " has") + " none");
  check_heads(request, method);
  check_beams(request, method, models);
  if (takes_inner_draft(method) ? request.inner.has_value() == models.inner.has_value()
                                : request.inner.has_value())
    throw Error("a second draft is for speculation by a hierarchy, which needs one");
  if (request.lenience && drafts && (request.drafts_without_model() || !takes_lenience(method)))
    throw Error(
        "lenience is of tokens that were drawn from a draft model and are tried one by one: "
        "not of " +
        speculation());
  require(!request.probe || drafts, "acceptance is measured of a draft and a target");
}

/// One plan in the making: what was asked, what is left to choose, and what it would take.
class Planning {
 public:
  Planning(const PlanRequest& request, const ModelSweeps& models, std::uint64_t process_bytes,
           const ScratchBytes& scratch_bytes);
  Planning(const Planning&) = delete;  // the planner's input calls this one
  Planning& operator=(const Planning&) = delete;
  Plan make();

 private:
  PlannerInput planner_input();
  /// Everything but the target's weights.
  Plan beside(const TreeShape& shape, int sequences) const;
  bool fits(const TreeShape& shape, int sequences) const {
    return weights_.place(beside(shape, sequences), request_, 0).has_value();
  }
  SpeculationMethod method_for(const TreeShape& shape) const;
  bool is_free() const { return !given_ && request_.tree_size == 0; }  // the tree
  void take_given();
  void choose_trees();

  PlanRequest request_;
  const SweepLayout& target_;
  const TargetMemory weights_;
  const std::uint64_t process_bytes_;
  const ScratchBytes& scratch_bytes_;
  const SpeculationMethod asked_;
  const DraftModels drafts_;  // once: hundreds of shapes are tried
  std::optional<TreeShape> given_;
  PlannerInput input_;
  std::optional<Choice> choice_;
  TreeShape shape_;
  int sequences_ = 1;
};

Planning::Planning(const PlanRequest& request, const ModelSweeps& models,
                   std::uint64_t process_bytes, const ScratchBytes& scratch_bytes)
    : request_(request),
      target_(models.target),
      weights_(target_, drafts_with_itself(request.method)),
      process_bytes_(process_bytes),
      scratch_bytes_(scratch_bytes),
      asked_(method_of(request, models.draft || request.drafts_without_model())),
      drafts_{drafts_with_itself(asked_)
                  ? DraftModel{models.target.config, 0}
                  : DraftModel::of(models.draft, request.device_memory.has_value()),
              DraftModel::of(models.inner, request.device_memory.has_value())} {
  check(request_, asked_, models);
  const bool on_device = request_.device_memory.has_value();
  if (request_.resident_layers)
    request_.resident = weights_.bytes_of_layers(*request_.resident_layers, on_device);
  if (request_.resident) weights_.require_drafting(*request_.resident, on_device);
  if (request_.heads && request_.tree_levels == 0) request_.tree_levels = request_.heads->heads + 1;
  if (request_.drafts_without_model() && request_.cost)
    request_.cost = with_free_drafts(*request_.cost);
  int vocab = target_.config.vocab;
  if (drafts_.outer) vocab = std::min(vocab, drafts_.outer->config.vocab);
  given_ = given_shape(request_, asked_, vocab);
  input_ = planner_input();
}

PlannerInput Planning::planner_input() {
  PlannerInput input;
  input.cost = request_.cost.get();
  input.acceptance = acceptance_of(request_);
  input.sampled = request_.temperature > 0;
  input.context = 0.5 * (request_.max_prompt + request_.context);
  input.sequences = request_.max_sequences;
  input.nodes = request_.tree_size;
  if (request_.tree_levels != 0) input.max_levels = request_.tree_levels;
  input.plain = asked_ == SpeculationMethod::kAuto;
  const bool chain = row_of(asked_).form == TreeForm::kChain;
  input.chains = asked_ == SpeculationMethod::kAuto || chain;
  input.trees = !chain;
  input.lay_out = [this](const TreeShape& shape, int sequences,
                         std::uint64_t ring) -> std::optional<WeightPlan> {
    const auto placed = weights_.place(beside(shape, sequences), request_, ring);
    if (!placed) return std::nullopt;
    return weights_.seen(*placed, request_.device_memory.has_value());
  };
  return input;
}

SpeculationMethod Planning::method_for(const TreeShape& shape) const {
  if (asked_ != SpeculationMethod::kAuto) return asked_;
  return shape.size() == 1                 ? SpeculationMethod::kNone
         : shape.levels() == shape.size()  ? SpeculationMethod::kChain
         : request_.drafts_without_model() ? SpeculationMethod::kTopK
                                           : SpeculationMethod::kSequoia;
}

Plan Planning::beside(const TreeShape& shape, int sequences) const {
  Plan plan = lay_out(
      request_,
      {.method = method_for(shape), .shape = shape, .sequences = sequences, .adaptive = is_free()},
      target_.config, drafts_, process_bytes_, scratch_bytes_);
  if (plan.device) weights_.enter_driver(plan, request_);
  return plan;
}

void Planning::take_given() {
  shape_ = *given_;
  sequences_ = request_.probe ? request_.max_sequences
                              : std::clamp(kGivenRows / shape_.size(), 1, request_.max_sequences);
  while (sequences_ > 1 && !fits(shape_, sequences_)) --sequences_;
  // Nothing is predicted of trees that are not of a shape.
  if (input_.cost != nullptr && row_of(asked_).growth != Growth::Kind::kGraph &&
      row_of(asked_).growth != Growth::Kind::kBeams && !row_of(asked_).inexact)
    if (auto candidate = predict(input_, shape_, sequences_))
      choice_ = {{std::move(*candidate)}, {}};
}

void Planning::choose_trees() {
  require(input_.cost != nullptr, "to choose a tree takes a profile of the machine");
  choice_ = choose(input_);
  if (choice_) {
    shape_ = choice_->best.shape;
    sequences_ = choice_->best.sequences;
  } else if (asked_ != SpeculationMethod::kAuto) {
    shape_ = TreeShape::chain(2);  // the least there is; it says what is missing
  }
}

Plan Planning::make() {
  if (given_)
    take_given();
  else
    choose_trees();
  const Growth growth = growth_of(growth_for(request_, asked_), input_, shape_, sequences_);
  if (growth.kind == Growth::Kind::kReach && is_free())
    shape_ = lengthened(shape_, sequences_,
                        [this](const TreeShape& longer) { return fits(longer, sequences_); });
  Plan plan = beside(shape_, sequences_);
  plan.policy.growth = growth;
  plan.inexact = inexact_rule(request_, plan.method);
  const auto placed = weights_.place(plan, request_, choice_ ? choice_->best.ring_wish : 0);
  if (!placed) weights_.refuse(std::move(plan), request_);
  if (placed->resident && drafts_with_itself(asked_))
    throw Error(std::string(name(asked_)) +
                " drafts with the weights that rest while others travel, and with this budget none "
                "travel: give less memory, or a draft model");
  weights_.enter(plan, *placed);
  plan.acceptance = input_.acceptance;
  plan.cost = request_.cost;
  plan.weights = weights_.seen(*placed, plan.device.has_value());
  plan.rows_behind_link = kGivenRows;  // where nothing travels, or nothing was measured
  if (plan.cost)
    plan.rows_behind_link =
        plan.cost->rows_behind_link(plan.weights, input_.context).value_or(kGivenRows);
  // Texts teach how often the shape's tokens are accepted, not those of what a growth left of it.
  plan.adaptive = is_free() && shape_.size() > 1 && growth.kind == Growth::Kind::kShape;
  plan.prediction = std::move(choice_);
  return plan;
}

}  // namespace

Plan make_plan(const PlanRequest& request, const ModelSweeps& models, std::uint64_t process_bytes,
               const ScratchBytes& scratch_bytes) {
  return Planning(request, models, process_bytes, scratch_bytes).make();
}

}  // namespace canopy
