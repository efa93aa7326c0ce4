#include "src/engine/plan/plan_layout.h"

#include <algorithm>
#include <string>
#include <utility>

#include "offload/streamer.h"
#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/speculation/drafters/model_drafter.h"
#include "src/speculation/verifier.h"

namespace canopy {

namespace {

// What comes on top of everything counted: thread stacks, page tables, the rings of the kernel,
// allocator slack, the text itself. tests/cli/memory_test.py holds it against a cgroup's own
// figure.
constexpr std::uint64_t kAllowance = 24u << 20;

// A level's nodes that the draft runs for one text.
constexpr int kWidestLevel = 32;

// Rows that a target on a device of its own works on at once: each chunk reads (and unpacks) its
// layer's weights again.
constexpr int kRowsOnDevice = 1024;

/// Room that a growth takes for one text where its levels are not the shape's; else none.
TreeRoom room_of_growth(const DraftPolicy::Config& config) {
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

class Layout {
 public:
  Layout(const PlanRequest& request, const PlannedTrees& trees, const ModelConfig& target,
         const DraftModels& drafts, const ScratchBytes& scratch_bytes)
      : request_(request),
        trees_(trees),
        target_(target),
        models_(drafts),
        scratch_bytes_(scratch_bytes),
        speculates_(trees.method != SpeculationMethod::kNone),
        drafts_((speculates_ || request.beams) && drafts.outer.has_value()),
        guesses_(takes_inner_draft(trees.method) && drafts.inner.has_value()) {}

  Plan make(std::uint64_t process_bytes) && {
    put_request();
    put_trees();
    limit_target();
    size_caches();
    plan_.ledger.push_back({"the process as it stands: code, libraries, tokenizer", process_bytes});
    plan_.ledger.push_back({"allowance: thread stacks, page tables, text", kAllowance});
    if (request_.beside > 0)
      plan_.ledger.push_back({"beside the engine: connections, requests, rows", request_.beside});
    if (speculates_ && request_.model_free) enter_model_free();
    if (speculates_ && request_.heads) enter_heads();
    if (drafts_) enter_draft();
    if (guesses_) enter_inner_draft();
    enter_target();
    return std::move(plan_);
  }

 private:
  void put_request();
  void put_trees();
  void limit_target();
  void size_caches();
  void enter_model_free();
  void enter_heads();
  void enter_draft();
  void enter_inner_draft();
  void enter_target();
  void enter_model(const std::string& whose, const DraftModel& model,
                   const Transformer::Limits& limits);
  void enter_pool(const std::string& whose, const ModelConfig& config);
  void enter(std::string what, std::uint64_t bytes, std::uint64_t allocations);
  void reserve_scratch(const Workload& largest) {
    scratch_ = std::max(scratch_, scratch_bytes_(largest));
  }

  const PlanRequest& request_;
  const PlannedTrees& trees_;
  const ModelConfig& target_;
  const DraftModels& models_;
  const ScratchBytes& scratch_bytes_;
  const bool speculates_, drafts_, guesses_;
  Plan plan_;
  int tree_rows_ = 1;     // of a sweep, that the target runs
  int scratch_rows_ = 1;  // that the draft runs, which may be nodes that are not in a tree
  int prompt_rows_ = 0;   // of a sweep
  std::size_t scratch_ = 0;
};

void Layout::put_request() {
  plan_.memory = request_.memory;
  const DType kv = request_.kv.value_or(request_.device_memory ? DType::kF16 : DType::kF32);
  plan_.kv = {kv, kv};
  plan_.method = trees_.method;
  plan_.max_sequences = trees_.places;
  plan_.max_prompt = request_.max_prompt;
  plan_.context = request_.context;
  plan_.probe = request_.probe;
  plan_.beams = request_.beams;
  plan_.inner = request_.inner;
  if (request_.device_memory) {
    Plan::DevicePart part;
    part.memory = *request_.device_memory;
    plan_.device = std::move(part);
  }
}

void Layout::put_trees() {
  DraftPolicy::Config& policy = plan_.policy;
  policy.shape = trees_.shape;
  policy.drawing = request_.drafts_without_model()
                       ? Drawing::kTopK
                       : drawing_of(trees_.method, request_.temperature);
  policy.growth = growth_for(request_, trees_.method);
  policy.max_requests = trees_.places;
  policy.graphs = request_.graphs;
  const TreeRoom of_growth = room_of_growth(policy);
  policy.room = of_growth.nodes > 0 ? of_growth.for_texts(trees_.places) : trees_.room;
  plan_.adaptive = trees_.adaptive && trees_.shape.size() > 1;
  tree_rows_ = request_.beams   ? request_.beams->nodes()
               : request_.probe ? trees_.places
                                : policy.room.nodes;
  scratch_rows_ = std::max(tree_rows_, policy.room.inner);
}

void Layout::limit_target() {
  // A text that is alone may have the nodes of all.
  plan_.slots = request_.context + (plan_.adaptive ? tree_rows_ : scratch_rows_ / trees_.places);
  const int all = trees_.places * request_.max_prompt;
  prompt_rows_ = request_.prompt_rows > 0 ? std::min(request_.prompt_rows, all) : all;
  Transformer::Limits& limits = plan_.target_limits;
  if (request_.device_memory) limits.chunk = kRowsOnDevice;
  limits.max_tree = tree_rows_;
  limits.max_nodes = prompt_rows_ + tree_rows_;
  limits.max_logit_rows = request_.beams ? request_.beams->beams + request_.beams->drafted()
                                         : std::max(tree_rows_, request_.logit_rows);
  limits.max_context = plan_.slots;
}

/// Room for full texts, for the sweep's trees, and for short texts in the places that are left.
void Layout::size_caches() {
  const int one = KvPool::blocks_for(plan_.slots), trees = KvPool::blocks_for(tree_rows_);
  const int places = trees_.places, context = request_.context;
  const int full = request_.full_texts > 0 ? std::min(request_.full_texts, places) : places;
  const auto blocks = [&](int long_texts) {
    const int of_texts = long_texts * KvPool::blocks_for(context) +
                         (places - long_texts) * KvPool::blocks_for(std::min(context, kShortText));
    return std::clamp(of_texts + trees, one, places * one);
  };
  plan_.kv_blocks = blocks(full);
  if (!request_.kv_memory) return;
  std::uint64_t block = KvPool::bytes_needed(target_, 1, plan_.kv);
  if (drafts_) block += KvPool::bytes_needed(models_.outer->config, 1, plan_.kv);
  if (guesses_) block += KvPool::bytes_needed(models_.inner->config, 1, plan_.kv);
  const std::uint64_t given = *request_.kv_memory / block;
  if (given < static_cast<std::uint64_t>(one))
    throw BudgetError("the memory for keys and values, " + format_size(*request_.kv_memory) +
                      ", is too small: one text of " + std::to_string(request_.context) +
                      " tokens and its tree take " +
                      format_size(block * static_cast<std::uint64_t>(one)));
  plan_.kv_blocks = static_cast<int>(std::min(given, static_cast<std::uint64_t>(blocks(places))));
}

void Layout::enter_model_free() {
  plan_.model_free = request_.model_free;
  plan_.policy.vocab = target_.vocab;
  plan_.ledger.push_back(
      {"draft " + name(*plan_.model_free) + ": what it counts and finds",
       ModelFreeDrafter::host_bytes(*plan_.model_free, target_.vocab, plan_.slots)});
}

void Layout::enter_heads() {
  plan_.heads = request_.heads;
  plan_.policy.vocab = target_.vocab;
  const HeadDrafter::Limits limits = plan_.head_limits(target_);
  enter("heads", plan_.heads->weight_bytes, 1);
  enter("heads' values and logits", HeadDrafter::device_bytes(plan_.heads->heads, limits),
        HeadDrafter::kAllocations);
  reserve_scratch(HeadDrafter::workload(plan_.heads->heads, limits));
}

void Layout::enter_draft() {
  const ModelConfig& config = models_.outer->config;
  DraftPolicy::Config& policy = plan_.policy;
  policy.vocab = std::min(target_.vocab, config.vocab);
  policy.edited_context = plan_.slots;
  policy.edited_vocab = std::max(target_.vocab, config.vocab);
  const auto& beams = request_.beams;
  Transformer::Limits& limits = plan_.draft_limits;
  limits.max_logit_rows =
      beams ? std::max(beams->beams, beams->draft_beams) : DraftPolicy::widest_forward(policy);
  limits.max_tree = scratch_rows_;
  limits.max_nodes =
      beams ? plan_.target_limits.max_nodes : std::max(prompt_rows_, limits.max_tree);
  limits.max_context = plan_.slots;
  if (plan_.inner)
    plan_.ledger.push_back(
        {"draft's draft " + name(*plan_.inner) + ": what it counts and finds",
         ModelFreeDrafter::host_bytes(*plan_.inner, policy.edited_vocab, plan_.slots)});
  enter_model("draft", *models_.outer, limits);
  if (!beams)
    enter("draft probabilities", ModelDrafter::policy_bytes(policy), DraftPolicy::kAllocations);
}

void Layout::enter_inner_draft() {
  plan_.inner_policy.shape = TreeShape::chain(plan_.policy.growth.guesses + 1);
  plan_.inner_policy.vocab = std::min(plan_.policy.vocab, models_.inner->config.vocab);
  plan_.inner_limits = plan_.draft_limits;
  plan_.inner_limits.max_logit_rows = DraftPolicy::widest_forward(plan_.inner_policy);
  enter_model("draft's draft", *models_.inner, plan_.inner_limits);
  enter("draft's draft: proposals", DraftPolicy::device_bytes(plan_.inner_policy),
        DraftPolicy::kAllocations);
}

void Layout::enter_target() {
  reserve_scratch(Transformer::workload(target_, plan_.target_limits));
  enter_pool("target", target_);
  enter("target activations and logits",
        Transformer::activation_bytes(target_, plan_.target_limits), Transformer::kAllocations);
  enter("verification", Verifier::device_bytes(target_.vocab, plan_.slots), Verifier::kAllocations);
  enter("scratch of the kernels", scratch_, 1);
}

void Layout::enter_model(const std::string& whose, const DraftModel& model,
                         const Transformer::Limits& limits) {
  reserve_scratch(Transformer::workload(model.config, limits));
  if (model.weight_bytes > 0) enter(whose + " weights", model.weight_bytes, 2);
  enter_pool(whose, model.config);
  enter(whose + " activations and logits", Transformer::activation_bytes(model.config, limits),
        Transformer::kAllocations);
}

void Layout::enter_pool(const std::string& whose, const ModelConfig& config) {
  const auto texts = static_cast<std::uint64_t>(trees_.places);
  enter(whose + " KV cache, " + std::to_string(plan_.kv_blocks * kKvBlock) + " slots",
        KvPool::bytes_needed(config, plan_.kv_blocks, plan_.kv) +
            texts * KvCache::bytes_needed(plan_.slots),
        KvPool::kAllocations + texts * KvCache::kAllocations);
}

/// The bytes lie on the device, where that has memory of its own: it gives whole units of that to
/// each of so many allocations.
void Layout::enter(std::string what, std::uint64_t bytes, std::uint64_t allocations) {
  if (plan_.device)
    bytes = request_.driver.whole_units(bytes) + (allocations - 1) * request_.driver.unit;
  auto& ledger = plan_.device ? plan_.device->ledger : plan_.ledger;
  ledger.push_back({std::move(what), bytes});
}

}  // namespace

std::optional<DraftModel> DraftModel::of(const std::optional<SweepLayout>& sweep, bool on_device) {
  if (!sweep) return std::nullopt;
  return DraftModel{sweep->config,
                    on_device ? device_resident_bytes(*sweep) : resident_bytes(*sweep)};
}

Growth growth_for(const PlanRequest& request, SpeculationMethod method) {
  Growth growth = request.growth;
  growth.kind = row_of(method).growth;
  const bool ssd = method == SpeculationMethod::kSsd || drafts_with_itself(method);
  if (method == SpeculationMethod::kTsd || ssd) growth.merge = 0;
  if (ssd) growth.children = 1;
  growth.within_level = method == SpeculationMethod::kGsdSequoia;
  if (growth.kind == Growth::Kind::kConfidence) growth.bound = request.fallback;
  return growth;
}

Plan lay_out(const PlanRequest& request, const PlannedTrees& trees, const ModelConfig& target,
             const DraftModels& drafts, std::uint64_t process_bytes,
             const ScratchBytes& scratch_bytes) {
  return Layout(request, trees, target, drafts, scratch_bytes).make(process_bytes);
}

}  // namespace canopy
