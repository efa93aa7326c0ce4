#include "src/engine/plan/plan.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/engine/plan/planning.h"
#include "src/machine/process_memory.h"

namespace canopy {

namespace {

constexpr double kSafeShare = 0.8;  // the rest is for the page cache and for other programs

std::uint64_t sum_of(const std::vector<LedgerEntry>& ledger) {
  std::uint64_t sum = 0;
  for (const LedgerEntry& entry : ledger) sum += entry.bytes;
  return sum;
}

}  // namespace

std::uint64_t MemoryPlan::total() const { return sum_of(ledger); }
std::optional<std::string> Decisions::changes() const {
  if (inexact) return in_words(*inexact);
  if (beams && beams->joint > 0)
    return "joint decoding: of each " + std::to_string(beams->joint) +
           " tokens those that are likeliest together, as far as " + std::to_string(beams->beams) +
           " beams find them";
  return std::nullopt;
}
DraftBounds Decisions::draft_bounds(const ModelConfig& target) const {
  return {target.vocab, policy.room.nodes, max_sequences, slots};
}
DraftBounds Decisions::inner_bounds() const {
  // Texts have tokens of the target that the draft may not have.
  return {policy.edited_vocab, policy.growth.guesses + 1, max_sequences, slots};
}
std::uint64_t MemoryPlan::DevicePart::total() const { return sum_of(ledger); }

std::uint64_t safe_memory() {
  const SystemMemory system = system_memory();
  std::uint64_t bytes = resident_memory() +
                        static_cast<std::uint64_t>(kSafeShare * static_cast<double>(system.free()));
  // A program's own pages are resident here, and often charged to another cgroup.
  for (const CgroupMemory& group : system.cgroups) bytes = std::min(bytes, group.limit);
  return bytes;
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

void plan_for_conversations(PlanRequest& request, bool context_is_asked_for) {
  constexpr int kTypicalText = 1024, kLeastContext = 64;  // tokens
  // Rows of prompts in one sweep, of all texts: their arithmetic takes longer than any link, and
  // their memory stays small.
  constexpr int kPromptRows = 512;
  request.max_prompt = request.context - 1;
  request.prompt_rows = kPromptRows;
  request.texts = 1;
  request.full_texts = 1;
  request.reuses_texts = true;
  request.priced_text = std::min(kTypicalText, request.context / 2);
  if (!context_is_asked_for) request.least_context = std::min(kLeastContext, request.context);
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

Plan with_expert_slots(Plan plan, std::size_t slots) {
  ExpertReads& experts = plan.weights.experts;
  const std::size_t fewer =
      (plan.full_expert_slots > 0 ? plan.full_expert_slots : plan.expert_slots) - slots;
  const std::uint64_t bytes = fewer * experts.bytes;
  plan.expert_slots -= fewer;
  experts.stay -= static_cast<int>(fewer);
  if (plan.full_expert_slots > 0) {
    plan.full_expert_slots -= fewer;
    plan.most_expert_slots -= fewer;
    plan.full_resident_bytes -= bytes;
    if (plan.weights.least_stay) *plan.weights.least_stay -= static_cast<int>(fewer);
  }
  plan.resident_bytes -= bytes;
  plan.weights.resident_bytes -= bytes;
  for (LedgerEntry& entry : plan.device->ledger)
    if (entry.what.starts_with(kExpertCacheEntry)) entry.bytes -= bytes;
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

ModelSweeps lay_out_models(const Checkpoint& target, const std::optional<Checkpoint>& draft,
                           const std::optional<Checkpoint>& inner, const Share& share) {
  ModelSweeps models{lay_out_sweep(target, ExpertsAre::kInUnits, share), {}, {}, {}};
  if (target.config().experts.count > 0)
    models.apart = lay_out_sweep(target, ExpertsAre::kApart, share);
  if (draft) models.draft = lay_out_sweep(*draft);
  if (inner) models.inner = lay_out_sweep(*inner);
  return models;
}

namespace {

/// Contexts and places that a plan may have, the best first: what nobody asked for gives way.
struct Size {
  int context, places;
};
std::vector<Size> sizes_of(const PlanRequest& request) {
  std::vector<Size> sizes{{request.context, request.max_sequences}};
  const auto halve = [&](int Size::*what, int least) {
    while (least > 0 && sizes.back().*what > least) {
      Size next = sizes.back();
      next.*what = std::max(least, next.*what / 2);
      sizes.push_back(next);
    }
  };
  // Short texts in all places come before longer ones in fewer, and very short ones last.
  if (request.least_context > 0) halve(&Size::context, std::max(request.least_context, kShortText));
  if (request.texts > 0) halve(&Size::places, request.least_sequences);
  halve(&Size::context, request.least_context);
  return sizes;
}

PlanRequest with_size(PlanRequest request, const Size& size) {
  request.context = size.context;
  request.max_prompt = std::min(request.max_prompt, size.context);
  request.max_sequences = size.places;
  return request;
}

}  // namespace

Plan make_plan(const PlanRequest& request, const ModelSweeps& models, std::uint64_t process_bytes,
               const ScratchBytes& scratch_bytes) {
  const auto planning = [&](const Size& size) {
    return Planning(with_size(request, size), models, process_bytes, scratch_bytes);
  };
  const auto note_cuts = [&](Plan plan) {
    const Size is{plan.context, plan.max_sequences};
    const auto cut = [&](const std::string& what, const Size& instead, const char* flag) {
      plan.notes.push_back(what + ", for which at least " + planning(instead).least_memory() +
                           " would be needed; " + flag + " N chooses");
    };
    if (is.context < request.context)
      cut("the context is " + std::to_string(is.context) + " tokens, not " +
              std::to_string(request.context),
          {request.context, request.max_sequences}, "-c");
    if (request.texts > 0 && is.places < request.max_sequences)
      cut("texts that share a sweep: " + std::to_string(is.places) + ", not " +
              std::to_string(request.max_sequences),
          {is.context, request.max_sequences}, "--parallel");
    return plan;
  };
  const std::vector<Size> sizes = sizes_of(request);
  std::optional<Plan> plain;  // the first one that fits, without the draft that there is
  for (const Size& size : sizes) {
    if (plain && size.context < kShortText) break;  // a draft is not worth that
    try {
      Plan plan = planning(size).make();
      if (plan.notes.empty()) return note_cuts(std::move(plan));
      if (!plain) plain = std::move(plan);
    } catch (const BudgetError&) {
      if (&size == &sizes.back() && !plain) throw;
    }
  }
  return note_cuts(std::move(*plain));
}

MemoryPlan plan_memory(const Decisions& decisions, const PlanRequest& request,
                       const ModelSweeps& models, std::uint64_t process_bytes,
                       const ScratchBytes& scratch_bytes) {
  const PlanRequest same = with_size(request, {decisions.context, decisions.max_sequences});
  return Planning(same, models, process_bytes, scratch_bytes).memory_of(decisions);
}

}  // namespace canopy
