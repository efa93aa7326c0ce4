#include "src/engine/plan/ledgers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/base/size_text.h"
#include "src/machine/host_slab.h"
#include "src/model/kv_caches.h"
#include "src/speculation/drafters/model_drafter.h"
#include "src/speculation/verifier.h"

namespace canopy {

namespace {

// Bytes that come on top of everything counted: thread stacks, page tables, the rings of the
// kernel, allocator slack, the text itself. tests/cli/memory_test.py holds it against a cgroup's
// own figure.
constexpr std::uint64_t kAllowance = 24u << 20;

class Ledgers {
 public:
  Ledgers(const Decisions& decisions, const PlanRequest& request, const ModelConfig& target,
          const DraftModels& drafts, const ScratchBytes& scratch_bytes)
      : does_(decisions),
        request_(request),
        target_(target),
        models_(drafts),
        scratch_bytes_(scratch_bytes) {}

  MemoryPlan make(std::uint64_t process_bytes) && {
    plan_.memory = request_.memory;
    if (request_.device_memory) plan_.device.emplace().memory = *request_.device_memory;
    plan_.ledger.push_back({"the process as it stands: code, libraries, tokenizer", process_bytes});
    plan_.ledger.push_back({"allowance: thread stacks, page tables, text", kAllowance});
    if (request_.reserved_bytes > 0)
      plan_.ledger.push_back(
          {"around the engine: connections, requests, rows", request_.reserved_bytes});
    const bool speculates = does_.method != SpeculationMethod::kNone;
    if (does_.draft) enter_source("draft", *does_.draft, does_.draft_bounds(target_));
    if ((speculates || does_.beams) && models_.outer) enter_draft();
    if (takes_inner_draft(does_.method) && models_.inner) enter_inner_draft();
    enter_target();
    return std::move(plan_);
  }

 private:
  void enter_source(const std::string& whose, const DraftSource& source, const DraftBounds& bounds);
  void enter_draft();
  void enter_inner_draft();
  void enter_target();
  void enter_model(const std::string& whose, const DraftModel& model,
                   const Transformer::Limits& limits);
  void enter_pool(const std::string& whose, const ModelConfig& config);
  void enter_snapshots(const std::string& whose, const ModelConfig& config);
  void enter(std::string what, std::uint64_t bytes, std::uint64_t allocations);
  void reserve_scratch(const Workload& largest) {
    scratch_ = std::max(scratch_, scratch_bytes_(largest));
  }

  const Decisions& does_;
  const PlanRequest& request_;
  const ModelConfig& target_;
  const DraftModels& models_;
  const ScratchBytes& scratch_bytes_;
  MemoryPlan plan_;
  std::size_t scratch_ = 0;
};

void Ledgers::enter_source(const std::string& whose, const DraftSource& source,
                           const DraftBounds& bounds) {
  const DraftNeeds needs = source.needs(bounds);
  const std::string front = whose + " " + source.name() + ": ";
  for (const DraftBytes& line : needs.host) plan_.ledger.push_back({front + line.what, line.bytes});
  for (const DraftBytes& line : needs.device)
    enter(front + line.what, line.bytes, static_cast<std::uint64_t>(line.allocations));
  reserve_scratch(needs.workload);
}

void Ledgers::enter_draft() {
  if (does_.inner) enter_source("draft's draft", *does_.inner, does_.inner_bounds());
  enter_model("draft", *models_.outer, does_.draft_limits);
  if (!does_.beams) enter_snapshots("draft", models_.outer->config);
  if (const std::size_t bytes = ModelDrafter::state_bytes(does_.policy, does_.slots);
      !does_.beams && bytes > 0)
    plan_.ledger.push_back({"draft: places in the texts to copy from", bytes});
  if (!does_.beams)
    enter("draft probabilities", ModelDrafter::grower_bytes(does_.policy),
          static_cast<std::uint64_t>(ModelDrafter::grower_allocations(does_.policy)));
}

void Ledgers::enter_inner_draft() {
  enter_model("draft's draft", *models_.inner, does_.inner_limits);
  enter("draft's draft: proposals", ShapeGrower::device_bytes(does_.inner_policy),
        ShapeGrower::kAllocations);
}

void Ledgers::enter_target() {
  reserve_scratch(Transformer::workload(target_, does_.target_limits));
  enter_pool("target", target_);
  enter_snapshots("target", target_);
  enter("target activations and logits",
        Transformer::activation_bytes(target_, does_.target_limits), Transformer::kAllocations);
  enter("verification", Verifier::device_bytes(target_.vocab, does_.slots), Verifier::kAllocations);
  enter("scratch of the kernels", scratch_, 1);
}

void Ledgers::enter_model(const std::string& whose, const DraftModel& model,
                          const Transformer::Limits& limits) {
  reserve_scratch(Transformer::workload(model.config, limits));
  if (model.weight_bytes > 0) enter(whose + " weights", model.weight_bytes, 2);
  enter_pool(whose, model.config);
  enter(whose + " activations and logits", Transformer::activation_bytes(model.config, limits),
        Transformer::kAllocations);
}

void Ledgers::enter_pool(const std::string& whose, const ModelConfig& config) {
  if (plan_.device || KvPool::is_of_pages(config, does_.kv, page_bytes())) {
    plan_.kv_bytes += KvPool::bytes_needed(config, does_.kv_blocks, does_.kv);
    plan_.idle_kv_bytes +=
        KvPool::bytes_needed(config, does_.kv_blocks - does_.expected_blocks, does_.kv);
  }
  const auto texts = static_cast<std::uint64_t>(does_.max_sequences);
  enter(whose + " KV cache, " + std::to_string(does_.kv_blocks * kKvBlock) + " slots",
        KvPool::bytes_needed(config, does_.kv_blocks, does_.kv) +
            texts * KvCache::bytes_needed(does_.slots),
        KvPool::kAllocations + texts * KvCache::kAllocations);
  if (!config.recurrent()) return;
  const KvRoom room = does_.kv_room();
  enter(whose + " states of recurrent layers, " + std::to_string(texts) +
            (texts == 1 ? " text" : " texts"),
        texts * RecurrentState::bytes_needed(config, room.slots, room.nodes),
        texts * RecurrentState::kAllocations);
}

void Ledgers::enter_snapshots(const std::string& whose, const ModelConfig& config) {
  if (!config.recurrent() || does_.snapshots == 0) return;
  const std::uint64_t one =
      StateSnapshots::bytes_needed(config, 2) - StateSnapshots::bytes_needed(config, 1);
  enter(whose + " snapshots of recurrent layers, " + std::to_string(does_.snapshots) + " of " +
            format_size(one),
        StateSnapshots::bytes_needed(config, does_.snapshots), StateSnapshots::kAllocations);
}

/// Enters bytes of the device, where that has memory of its own: it gives whole units of that to
/// each of `allocations`.
void Ledgers::enter(std::string what, std::uint64_t bytes, std::uint64_t allocations) {
  if (plan_.device)
    bytes = request_.driver.whole_units(bytes) + (allocations - 1) * request_.driver.unit;
  auto& ledger = plan_.device ? plan_.device->ledger : plan_.ledger;
  ledger.push_back({std::move(what), bytes});
}

}  // namespace

MemoryPlan open_ledgers(const Decisions& decisions, const PlanRequest& request,
                        const ModelConfig& target, const DraftModels& drafts,
                        std::uint64_t process_bytes, const ScratchBytes& scratch_bytes) {
  return Ledgers(decisions, request, target, drafts, scratch_bytes).make(process_bytes);
}

}  // namespace canopy
