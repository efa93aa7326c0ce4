#include "src/engine/plan/planning.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "kernels/delta.h"
#include "planner/acceptance.h"
#include "src/base/error.h"

namespace canopy {

namespace {

// The shape that SpecInfer is measured with on models in memory (arXiv:2402.12374, Table 4).
constexpr int kSequences = 5, kSequenceLength = 8;
// Nodes of a graph's tree: the papers give no number; about as many as the planner takes.
constexpr int kGraphNodes = 64;
// The chain of BiLD where no length is given: the paper's 10 tokens.
constexpr int kRunNodes = 11;

// Rows of a sweep that trees of a given size may fill together, where several sequences share it:
// what a model works on at once (Transformer::Limits::chunk).
constexpr int kGivenRows = 256;

/// True if trees of a draft model are of drawn children, judged from below.
bool is_judged_from_below(const PlanRequest& request, SpeculationMethod method) {
  const Method& row = row_of(method);
  return request.temperature > 0 && refuses_and_owes(row.drawing) && row.form != TreeForm::kGraph &&
         !request.typical && request.lenience.value_or(1) == 1;
}

Acceptance acceptance_of(const PlanRequest& request, SpeculationMethod method) {
  if (request.draft && !request.acceptance) return request.draft->prior(request.temperature);
  Acceptance acceptance = request.acceptance.value_or(default_acceptance(request.temperature));
  // A draft model's depends on the level from below alone.
  if (!request.draft && !is_judged_from_below(request, method)) acceptance.deeper.clear();
  return acceptance;
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
Growth growth_of(Growth growth, const PlannerInput& input, const TreeShape& shape, int texts,
                 int places) {
  if (growth.kind != Growth::Kind::kReach || input.cost == nullptr || shape.size() == 1)
    return growth;
  const TreeShape half = TreeShape::chain((shape.size() + 1) / 2);
  const auto whole = predict(input, shape, texts, places),
             part = predict(input, half, texts, places);
  if (!whole || !part) return growth;
  const Seconds added = (whole->cost.step - part->cost.step) / (shape.size() - half.size());
  growth.bound = std::max(0.0, whole->tokens * (added / whole->cost.step));
  return growth;
}

/// The length that a chain of adaptive length may have: twice a fixed one's.
TreeShape lengthened(const TreeShape& chain, int sequences) {
  const PlannerInput most;
  const int nodes = std::min({2 * chain.size() - 1, most.max_levels, most.max_nodes / sequences});
  return TreeShape::chain(std::max(nodes, chain.size()));
}

/// The same machine with this draft.
std::shared_ptr<const CostModel> with_draft(const CostModel& cost, const DraftSource& draft) {
  HardwareProfile profile = cost.profile();
  profile.drafting = {draft.level_seconds(), draft.level_seconds(), Seconds(0)};
  return std::make_shared<CostModel>(std::move(profile), cost.network());
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
  if (method == SpeculationMethod::kMtad) return TreeShape::chain(request.joint_tokens + 1);
  if (form == TreeForm::kSequences) return TreeShape::sequences(kSequences, kSequenceLength);
  if (request.tree_size != 0 && request.tree_levels != 0)
    return best_tree(request.tree_size, request.tree_levels, acceptance_of(request, method));
  return std::nullopt;
}

/// Throws Error where the context is longer than a table of learned positions: none come after the
/// last.
void require_positions(const SweepLayout& sweep, const char* whose, int context) {
  const ModelConfig& config = sweep.config;
  const bool learned = config.form.positions == PositionKind::kLearned;
  if (learned && context > config.max_positions)
    throw Error("a context of " + std::to_string(context) + " tokens is beyond the " +
                std::to_string(config.max_positions) + " positions that the " + whose +
                " has learned");
}

// Most levels of a tree of a model with recurrent layers, its root's among them.
constexpr int kRecurrentLevels = kDeepestTree + 1;

/// Throws Error where a model with recurrent layers cannot do what is asked.
void check_recurrent(const PlanRequest& request, SpeculationMethod method, const SweepLayout& sweep,
                     const std::string& whose) {
  if (!sweep.config.recurrent()) return;
  if (request.beams)
    throw Error("a beam search keeps more of its beams' ends than the states of the " + whose +
                "'s recurrent layers go back: give no --num-beams");
  const TreeForm form = row_of(method).form;
  const bool may_be_chain = request.draft || form == TreeForm::kChain || form == TreeForm::kGraph;
  if ((request.shape && request.shape->levels() > kRecurrentLevels) ||
      request.tree_levels > kRecurrentLevels ||
      (may_be_chain && request.tree_size > kRecurrentLevels))
    throw Error("a tree of more than " + std::to_string(kRecurrentLevels) + " levels: the " +
                whose + " has recurrent layers, whose states are kept that far back");
}

/// The method, where the request alone decides it.
SpeculationMethod method_of(const PlanRequest& request, bool can_draft) {
  if (request.beams) return SpeculationMethod::kNone;
  if (request.method == SpeculationMethod::kAuto && !can_draft) return SpeculationMethod::kNone;
  return request.method;
}

void check_levels(const PlanRequest& request, SpeculationMethod method) {
  if (!request.draft || request.draft->levels() == 0) return;
  require(!request.probe || !request.draft->has_heads(),
          "acceptance of heads is measured where they are trained");
  const int levels = request.draft->levels() + 1;
  if ((request.shape && request.shape->levels() > levels) || request.tree_levels > levels ||
      (row_of(method).form == TreeForm::kChain && request.tree_size > levels))
    throw Error("a tree of more than " + std::to_string(levels) + " levels: there are " +
                request.draft->name() + ", which draft " + std::to_string(levels - 1));
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
  check_recurrent(request, method, models.target, "model");
  if (models.draft) check_recurrent(request, method, *models.draft, "draft");
  if (models.inner) check_recurrent(request, method, *models.inner, "draft's draft");
  Speculation asked = request;
  asked.method = method;
  if (method == SpeculationMethod::kNone) {  // which a request may leave to its draft
    asked.shape.reset();
    asked.tree_size = asked.tree_levels = 0;
  }
  if (const auto fault = find_fault(asked, {models.draft.has_value(), models.inner.has_value()}))
    throw Error("speculation: " + std::string(name(fault->field)) + ": " + fault->what);
  if (drafts_with_itself(method) && models.target.config.layers < 2)
    throw Error("speculation: " + std::string(name(method)) +
                " leaves layers out, and the model has only one");
  if (drafts_with_itself(method) && models.apart)
    throw Error("speculation: " + std::string(name(method)) +
                " drafts with layers that rest whole, and this model is a mixture of experts: its "
                "memory is worth more as a cache of experts; give a small dense draft, or none");
  check_levels(request, method);
  check_beams(request, method, models);
  require(!request.probe || method != SpeculationMethod::kNone,
          "acceptance is measured of a draft and a target");
}

}  // namespace

Planning::Planning(const PlanRequest& request, const ModelSweeps& models,
                   std::uint64_t process_bytes, const ScratchBytes& scratch_bytes)
    : request_(request),
      target_(models.target),
      weights_(target_, models.apart ? &*models.apart : nullptr, drafts_with_itself(request.method),
               request.routes),
      process_bytes_(process_bytes),
      scratch_bytes_(scratch_bytes),
      asked_(method_of(request, models.draft || request.draft)),
      drafts_{drafts_with_itself(asked_)
                  ? DraftModel{models.target.config, 0}
                  : DraftModel::of(models.draft, request.device_memory.has_value()),
              DraftModel::of(models.inner, request.device_memory.has_value())} {
  check(request_, asked_, models);
  const bool on_device = request_.device_memory.has_value();
  if (request_.resident_layers)
    request_.resident = weights_.bytes_of_layers(*request_.resident_layers, on_device);
  if (request_.resident) weights_.require_drafting(*request_.resident, on_device);
  if (request_.draft && request_.draft->levels() > 0 && request_.tree_levels == 0)
    request_.tree_levels = request_.draft->levels() + 1;
  if (request_.draft && request_.cost) request_.cost = with_draft(*request_.cost, *request_.draft);
  int vocab = target_.config.vocab;
  if (drafts_.outer) vocab = std::min(vocab, drafts_.outer->config.vocab);
  given_ = given_shape(request_, asked_, vocab);
  input_ = planner_input();
}

PlannerInput Planning::planner_input() {
  PlannerInput input;
  input.cost = request_.cost.get();
  input.acceptance = acceptance_of(request_, asked_);
  input.sampled = request_.temperature > 0;
  input.context = request_.priced_text > 0 ? std::min(request_.priced_text, request_.context)
                                           : 0.5 * (request_.max_prompt + request_.context);
  input.full_context = request_.context;
  input.places = request_.max_sequences;
  if (request_.texts > 0) input.least_places = input.places;
  input.texts = request_.texts;
  input.nodes = request_.tree_size;
  input.roomy = is_free();
  if (request_.tree_levels != 0) input.max_levels = request_.tree_levels;
  // A copied tree may be one chain.
  if (request_.draft && target_.config.recurrent())
    input.max_nodes = std::min(input.max_nodes, kRecurrentLevels);
  input.plain = asked_ == SpeculationMethod::kAuto;
  input.valued = row_of(asked_).growth == Growth::Kind::kValued;
  // Children that are drawn cannot be chosen by their chances; no GPU has run the kernels yet.
  const bool may_be_valued = asked_ == SpeculationMethod::kAuto && !input.sampled &&
                             drafts_.outer && !request_.draft && !request_.probe &&
                             !request_.device_memory;
  if (input.valued || may_be_valued) {
    const ChanceKind kind = chance_kind(request_.temperature);
    input.gain.emplace(request_.calibrated.of(kind).sizes, kind, input.acceptance);
  }
  const bool chain = row_of(asked_).form == TreeForm::kChain;
  input.chains = asked_ == SpeculationMethod::kAuto || chain;
  input.trees = !chain;
  // The memory depends on the room alone, but for whether there is a draft.
  input.lay_out = [this](const TreeRoom& room, int places,
                         std::uint64_t ring) -> std::optional<WeightPlan> {
    const TreeShape shape = room.inner > 0 ? TreeShape::chain(2) : TreeShape();
    const auto placed = place(shape, room, places, ring);
    if (!placed) return std::nullopt;
    return weights_.seen(*placed, request_.device_memory.has_value());
  };
  return input;
}

SpeculationMethod Planning::method_for(const TreeShape& shape, const TreeRoom& room) const {
  if (asked_ != SpeculationMethod::kAuto) return asked_;
  return shape.size() == 1                ? SpeculationMethod::kNone
         : room.run > 0                   ? SpeculationMethod::kCalibrated
         : shape.levels() == shape.size() ? SpeculationMethod::kChain
         : request_.draft                 ? SpeculationMethod::kTopK
                                          : SpeculationMethod::kSequoia;
}

TreeRoom Planning::room_of(const TreeShape& shape, int places) const {
  const TreeRoom room = TreeRoom::of(shape).for_texts(places);
  const bool valued = row_of(asked_).growth == Growth::Kind::kValued && shape.size() > 1;
  return valued ? with_valued_rows(room, places) : room;
}

Decisions Planning::decide_for(const TreeShape& shape, const TreeRoom& room, int places) const {
  return decide(request_,
                {.method = method_for(shape, room),
                 .shape = shape,
                 .room = room,
                 .places = places,
                 .adaptive = is_free()},
                target_.config, drafts_);
}

MemoryPlan Planning::memory_without_weights(const Decisions& decisions) const {
  MemoryPlan plan =
      open_ledgers(decisions, request_, target_.config, drafts_, process_bytes_, scratch_bytes_);
  if (plan.device) weights_.enter_driver(plan, decisions, request_);
  return plan;
}

std::optional<WeightPlace> Planning::place(const TreeShape& shape, const TreeRoom& room, int places,
                                           std::uint64_t ring) const {
  try {
    return weights_.place(memory_without_weights(decide_for(shape, room, places)), request_, ring);
  } catch (const BudgetError&) {  // of keys and values
    return std::nullopt;
  }
}

void Planning::take_given() {
  shape_ = *given_;
  const int most = request_.max_sequences;
  places_ =
      request_.probe || request_.texts > 0 ? most : std::clamp(kGivenRows / shape_.size(), 1, most);
  const auto room = [&] { return room_of(shape_, places_); };
  while (request_.texts == 0 && places_ > request_.least_sequences &&
         !fits(shape_, room(), places_))
    --places_;
  room_ = room();
  // Nothing is predicted of trees that are not of a shape.
  if (input_.cost == nullptr || row_of(asked_).growth == Growth::Kind::kGraph ||
      row_of(asked_).growth == Growth::Kind::kBeams || row_of(asked_).inexact)
    return;
  auto one = predict(input_, shape_, texts_of(places_), places_),
       full = predict_full(input_, shape_, places_);
  if (one && full) choice_ = {std::move(*one), std::move(*full), {}};
}

void Planning::choose_trees() {
  require(input_.cost != nullptr, "to choose a tree takes a profile of the machine");
  choice_ = choose(input_);
  if (choice_) {
    shape_ = choice_->best.shape;
    room_ = choice_->best.room;
    places_ = choice_->best.places;
  } else {
    places_ = input_.least_places;  // the least there is; it says what is missing
    if (asked_ != SpeculationMethod::kAuto) shape_ = TreeShape::chain(2);
    room_ = room_of(shape_, places_);
  }
}

std::string Planning::least_memory() const {
  const TreeShape least = is_free() && asked_ != SpeculationMethod::kNone ? TreeShape::chain(2)
                                                                          : given_.value_or(shape_);
  const int places = input_.least_places;
  try {
    return weights_.least_memory(
        memory_without_weights(decide_for(least, room_of(least, places), places)));
  } catch (const BudgetError&) {  // of keys and values
    return "more memory for keys and values";
  }
}

void Planning::note_idle_draft(Plan& plan) const {
  if (asked_ != SpeculationMethod::kAuto || plan.method != SpeculationMethod::kNone) return;
  const std::string needs = least_memory();
  const Candidate* drafted = nullptr;
  for (const Candidate& one : choice_->table)
    if (one.shape.size() > 1 && (drafted == nullptr || one.per_token() < drafted->per_token()))
      drafted = &one;
  const auto seconds = [](const Candidate& one) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.3g s a token", one.per_token().count());
    return std::string(text.data());
  };
  plan.notes.push_back("the draft is not used: " +
                       (drafted == nullptr
                            ? "with it at least " + needs + " would be needed"
                            : "with it " + seconds(*drafted) + " would be predicted, and " +
                                  seconds(choice_->best) + " without; it takes at least " + needs));
}

MemoryPlan Planning::memory_of(const Decisions& decisions) const {
  MemoryPlan plan = memory_without_weights(decisions);
  const auto placed = weights_.place(plan, request_, decisions.ring_wish);
  if (!placed) weights_.refuse(std::move(plan), request_);
  if (placed->resident && drafts_with_itself(decisions.method))
    throw Error(std::string(name(decisions.method)) +
                " drafts with the weights that rest while others travel, and with this budget none "
                "travel: give less memory, or a draft model");
  weights_.enter(plan, *placed);
  return plan;
}

Plan Planning::make() {
  if (given_)
    take_given();
  else
    choose_trees();
  const Growth growth = growth_of(growth_for(request_, method_for(shape_, room_)), input_, shape_,
                                  texts_of(places_), places_);
  if (growth.kind == Growth::Kind::kReach && is_free()) {
    TreeShape longer = lengthened(shape_, places_);
    const TreeRoom room = TreeRoom::of(longer).for_texts(places_);
    if (fits(longer, room, places_)) {
      shape_ = std::move(longer);
      room_ = room;
    }
  }
  Plan plan{decide_for(shape_, room_, places_), {}, {}};
  plan.policy.growth = growth;
  // Texts show how often the shape's tokens are accepted, not those of what a growth left of it.
  plan.adaptive = plan.adaptive &&
                  (growth.kind == Growth::Kind::kShape || growth.kind == Growth::Kind::kValued);
  plan.inexact = inexact_rule(request_, plan.method);
  plan.ring_wish = choice_ ? choice_->best.ring_wish : 0;
  static_cast<MemoryPlan&>(plan) = memory_of(plan);
  plan.acceptance = input_.acceptance;
  plan.cost = request_.cost;
  plan.priced_context = input_.context;
  plan.weights = weights_.seen(plan);
  if (!request_.from_disk)
    if (const auto note = weights_.scarcity(plan)) plan.notes.push_back(*note);
  plan.rows_behind_link = kGivenRows;  // where nothing travels, or nothing was measured
  if (plan.cost)
    plan.rows_behind_link =
        plan.cost->rows_behind_link(plan.weights, input_.context).value_or(kGivenRows);
  note_idle_draft(plan);
  plan.prediction = std::move(choice_);
  return plan;
}

}  // namespace canopy
