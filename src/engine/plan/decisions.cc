#include "src/engine/plan/decisions.h"

#include <algorithm>
#include <string>
#include <utility>

#include "offload/streamer.h"
#include "src/base/size_text.h"
#include "src/model/kv_caches.h"

namespace canopy {

namespace {

// A level's nodes that the draft runs for one text.
constexpr int kWidestLevel = 32;

// Rows that a target on a device of its own works on at once: each chunk reads (and unpacks) its
// layer's weights again.
constexpr int kRowsOnDevice = 1024;

/// Room that a growth takes for one text where its levels are not the shape's; else none.
TreeRoom room_of_growth(const ShapeGrower::Config& config) {
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

class Deciding {
 public:
  Deciding(const PlanRequest& request, const PlannedTrees& trees, const ModelConfig& target,
           const DraftModels& drafts)
      : request_(request),
        trees_(trees),
        target_(target),
        models_(drafts),
        speculates_(trees.method != SpeculationMethod::kNone),
        drafts_((speculates_ || request.beams) && drafts.outer.has_value()),
        guesses_(takes_inner_draft(trees.method) && drafts.inner.has_value()) {}

  Decisions make() && {
    put_request();
    put_trees();
    limit_target();
    size_caches();
    if (drafts_) limit_draft();
    if (guesses_) limit_inner_draft();
    return std::move(made_);
  }

 private:
  void put_request();
  void put_trees();
  void limit_target();
  void size_caches();
  void limit_draft();
  void limit_inner_draft();

  const PlanRequest& request_;
  const PlannedTrees& trees_;
  const ModelConfig& target_;
  const DraftModels& models_;
  const bool speculates_, drafts_, guesses_;
  Decisions made_;
  int tree_rows_ = 1;     // of a sweep, that the target runs
  int scratch_rows_ = 1;  // that the draft runs, which may be nodes that are not in a tree
  int prompt_rows_ = 0;   // of a sweep
};

void Deciding::put_request() {
  const DType kv = request_.kv.value_or(request_.device_memory ? DType::kF16 : DType::kF32);
  made_.kv = {kv, kv};
  made_.method = trees_.method;
  made_.max_sequences = trees_.places;
  made_.max_prompt = request_.max_prompt;
  made_.context = request_.context;
  made_.probe = request_.probe;
  made_.beams = request_.beams;
  made_.inner = request_.inner;
  made_.calibrated = request_.calibrated;
  if (speculates_) made_.draft = request_.draft;
  if (made_.draft) made_.policy.vocab = target_.vocab;
}

void Deciding::put_trees() {
  ShapeGrower::Config& policy = made_.policy;
  policy.shape = trees_.shape;
  policy.drawing =
      request_.draft ? Drawing::kTopK : drawing_of(trees_.method, request_.temperature);
  policy.growth = growth_for(request_, trees_.method);
  policy.max_requests = trees_.places;
  // States of recurrent layers move on between the forwards that a graph would repeat.
  policy.graphs = request_.graphs && !(drafts_ && models_.outer->config.recurrent());
  const TreeRoom of_growth = room_of_growth(policy);
  policy.room = of_growth.nodes > 0 ? of_growth.for_texts(trees_.places) : trees_.room;
  made_.adaptive = trees_.adaptive && trees_.shape.size() > 1;
  tree_rows_ = request_.beams   ? request_.beams->nodes()
               : request_.probe ? trees_.places
                                : policy.room.nodes;
  scratch_rows_ = std::max({tree_rows_, policy.room.inner, policy.room.run});
}

void Deciding::limit_target() {
  // A text that is alone may have the nodes of all.
  made_.slots = request_.context + (made_.adaptive ? std::max(tree_rows_, made_.policy.room.run)
                                                   : scratch_rows_ / trees_.places);
  const int all = trees_.places * request_.max_prompt;
  prompt_rows_ = request_.prompt_rows > 0 ? std::min(request_.prompt_rows, all) : all;
  Transformer::Limits& limits = made_.target_limits;
  if (request_.device_memory) limits.chunk = kRowsOnDevice;
  limits.max_tree = tree_rows_;
  limits.max_nodes = prompt_rows_ + tree_rows_;
  limits.max_logit_rows = request_.beams ? request_.beams->beams + request_.beams->drafted()
                                         : std::max(tree_rows_, request_.logit_rows);
  limits.max_read_rows = request_.beams ? 0 : limits.max_nodes;  // of prompts that are scored
  limits.max_context = made_.slots;
}

/// Room for full texts, for the sweep's trees, and for short texts in the places that are left.
void Deciding::size_caches() {
  const int one = KvPool::blocks_for(made_.slots),
            trees = KvPool::blocks_for(std::max(tree_rows_, made_.policy.room.run));
  const int places = trees_.places, context = request_.context;
  const int full = request_.full_texts > 0 ? std::min(request_.full_texts, places) : places;
  const auto blocks = [&](int long_texts) {
    const int of_texts = long_texts * KvPool::blocks_for(context) +
                         (places - long_texts) * KvPool::blocks_for(std::min(context, kShortText));
    return std::clamp(of_texts + trees, one, places * one);
  };
  made_.kv_blocks = blocks(full);
  // The end of each text's prompt, and its own; and a beginning that texts have in common.
  if (request_.reuses_texts) made_.snapshots = 2 * places + 1;
  const int expected = request_.texts > 0 ? std::min(request_.texts, places) : places;
  const int tokens = request_.priced_text > 0 ? std::min(request_.priced_text, context)
                                              : (request_.max_prompt + context) / 2;
  made_.expected_blocks = std::min(made_.kv_blocks, expected * KvPool::blocks_for(tokens) + trees);
  if (!request_.kv_memory) return;
  std::uint64_t block = KvPool::bytes_needed(target_, 1, made_.kv);
  if (drafts_) block += KvPool::bytes_needed(models_.outer->config, 1, made_.kv);
  if (guesses_) block += KvPool::bytes_needed(models_.inner->config, 1, made_.kv);
  const std::uint64_t given = *request_.kv_memory / block;
  if (given < static_cast<std::uint64_t>(one))
    throw BudgetError("the memory for keys and values, " + format_size(*request_.kv_memory) +
                      ", is too small: one text of " + std::to_string(request_.context) +
                      " tokens and its tree take " +
                      format_size(block * static_cast<std::uint64_t>(one)));
  made_.kv_blocks = static_cast<int>(std::min(given, static_cast<std::uint64_t>(blocks(places))));
  made_.expected_blocks = std::min(made_.expected_blocks, made_.kv_blocks);
}

void Deciding::limit_draft() {
  const ModelConfig& config = models_.outer->config;
  ShapeGrower::Config& policy = made_.policy;
  policy.vocab = std::min(target_.vocab, config.vocab);
  policy.edited_context = made_.slots;
  policy.edited_vocab = std::max(target_.vocab, config.vocab);
  const auto& beams = request_.beams;
  Transformer::Limits& limits = made_.draft_limits;
  limits.max_logit_rows =
      beams ? std::max(beams->beams, beams->draft_beams) : ShapeGrower::widest_forward(policy);
  limits.max_tree = scratch_rows_;
  limits.max_nodes =
      beams ? made_.target_limits.max_nodes : std::max(prompt_rows_, limits.max_tree);
  limits.max_context = made_.slots;
}

void Deciding::limit_inner_draft() {
  made_.inner_policy.shape = TreeShape::chain(made_.policy.growth.guesses + 1);
  made_.inner_policy.vocab = std::min(made_.policy.vocab, models_.inner->config.vocab);
  made_.inner_limits = made_.draft_limits;
  made_.inner_limits.max_logit_rows = ShapeGrower::widest_forward(made_.inner_policy);
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
  if (growth.kind == Growth::Kind::kValued && request.tree_levels != 0)
    growth.forwards = std::max(0, request.tree_levels - 2);  // the root's row makes the first level
  growth.within_level = method == SpeculationMethod::kGsdSequoia;
  if (growth.kind == Growth::Kind::kConfidence) growth.bound = request.fallback;
  return growth;
}

Decisions decide(const PlanRequest& request, const PlannedTrees& trees, const ModelConfig& target,
                 const DraftModels& drafts) {
  return Deciding(request, trees, target, drafts).make();
}

}  // namespace canopy
