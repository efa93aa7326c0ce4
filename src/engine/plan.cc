#include "src/engine/plan.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "offload/streamer.h"
#include "planner/acceptance.h"
#include "src/base/error.h"
#include "src/spec/verifier.h"

namespace canopy {

namespace {

// Until a plan is made from measurements (a later command), a tree of 64: on a self-draft it
// accepts about 7 tokens a sweep at temperature 0, and 64 rows cost less than reading their weights
// on every disk slower than 5 GB/s measured.
constexpr int kTreeSize = 64, kTreeLevels = 16, kChainSize = 8;

// What comes on top of everything counted: thread stacks, page tables, the rings of the kernel,
// allocator slack, the text itself. Held against a cgroup's own figure by tests/engine/memory_test.
constexpr std::uint64_t kAllowance = 24u << 20;

std::string mebibytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB", static_cast<double>(bytes) / 0x1p20);
  return text.data();
}

TreeShape choose_shape(const PlanRequest& request, Spec spec) {
  switch (spec) {
    case Spec::kChain:
      return TreeShape::chain(request.tree_size != 0 ? request.tree_size : kChainSize);
    case Spec::kSequoia: {
      const int size = request.tree_size != 0 ? request.tree_size : kTreeSize;
      const int levels = request.tree_levels != 0 ? request.tree_levels : kTreeLevels;
      return best_tree(size, std::min(levels, size), default_acceptance(request.temperature));
    }
    default:
      return TreeShape::chain(1);
  }
}

[[noreturn]] void refuse(const Plan& plan, const std::string& what) {
  std::string message = "a memory budget of " + mebibytes(plan.memory) + " is too small for " +
                        what + ": at least " + mebibytes(plan.total()) + " are needed";
  for (const LedgerEntry& entry : plan.ledger)
    message += "\n  " + mebibytes(entry.bytes) + "  " + entry.what;
  throw Error(message);
}

}  // namespace

const char* name(Spec spec) {
  switch (spec) {
    case Spec::kAuto:
      return "auto";
    case Spec::kNone:
      return "none";
    case Spec::kChain:
      return "chain";
    case Spec::kSequoia:
      return "sequoia";
  }
  return "?";
}

std::uint64_t Plan::total() const {
  std::uint64_t sum = 0;
  for (const LedgerEntry& entry : ledger) sum += entry.bytes;
  return sum;
}

Plan make_plan(const PlanRequest& request, const Checkpoint& target, const Checkpoint* draft,
               std::uint64_t process_bytes, const Ops& ops) {
  Plan plan;
  plan.memory = request.memory;
  plan.kv = request.kv;
  plan.spec = request.spec != Spec::kAuto ? request.spec : draft ? Spec::kSequoia : Spec::kNone;
  if (plan.spec != Spec::kNone && draft == nullptr)
    throw Error("speculation (" + std::string(name(plan.spec)) + ") needs a draft model");
  const ModelConfig& t = target.config();
  plan.policy.shape = choose_shape(request, plan.spec);
  plan.policy.drawing = request.temperature == 0 ? Drawing::kTopK : Drawing::kWithoutReplacement;
  const int nodes = plan.policy.shape.size();
  plan.slots = request.context + nodes;
  plan.target_limits.max_nodes = request.max_prompt + nodes;
  plan.target_limits.max_tree = nodes;
  plan.target_limits.max_logit_rows = std::max(nodes, request.logit_rows);
  plan.target_limits.max_context = plan.slots;

  auto& ledger = plan.ledger;
  ledger.push_back({"the process as it stands: code, libraries, tokenizer", process_bytes});
  ledger.push_back({"allowance: thread stacks, page tables, text", kAllowance});
  std::size_t scratch = ops.scratch_bytes(Transformer::workload(t, plan.target_limits));
  if (plan.spec != Spec::kNone) {
    const ModelConfig& d = draft->config();
    plan.policy.vocab = std::min(t.vocab, d.vocab);
    plan.draft_limits.max_logit_rows = DraftPolicy::widest_forward(plan.policy);
    plan.draft_limits.max_nodes = std::max(request.max_prompt, nodes);
    plan.draft_limits.max_tree = nodes;
    plan.draft_limits.max_context = plan.slots;
    ledger.push_back({"draft weights", resident_bytes(*draft)});
    ledger.push_back({"draft KV cache", KvCache::bytes_needed(d, plan.slots, plan.kv)});
    ledger.push_back(
        {"draft activations and logits", Transformer::activation_bytes(d, plan.draft_limits)});
    ledger.push_back({"draft probabilities", DraftPolicy::device_bytes(plan.policy)});
    scratch = std::max(scratch, ops.scratch_bytes(Transformer::workload(d, plan.draft_limits)));
  }
  ledger.push_back({"target KV cache, " + std::to_string(plan.slots) + " slots",
                    KvCache::bytes_needed(t, plan.slots, plan.kv)});
  ledger.push_back(
      {"target activations and logits", Transformer::activation_bytes(t, plan.target_limits)});
  ledger.push_back({"verification", Verifier::device_bytes(t.vocab)});
  ledger.push_back({"scratch of the kernels", scratch});

  const std::uint64_t fixed = plan.total();
  const std::uint64_t all = resident_bytes(target);
  if (fixed + all <= plan.memory) {
    plan.resident = true;
    plan.resident_layers = t.layers;
    ledger.push_back({"target weights, all resident", all});
    return plan;
  }
  const std::uint64_t two = Streamer::bytes_needed(target, 2);
  const std::uint64_t unit = Streamer::bytes_needed(target, 3) - two;
  plan.ring_units = 2;
  if (fixed + two < plan.memory)
    plan.ring_units += static_cast<int>(std::min<std::uint64_t>(
        (plan.memory - fixed - two) / unit, static_cast<std::uint64_t>(2 * t.layers)));
  const std::uint64_t ring = unit * static_cast<std::uint64_t>(plan.ring_units);
  ledger.push_back({"target embedding, head and norms, resident", two - 2 * unit});
  ledger.push_back({"ring of " + std::to_string(plan.ring_units) + " units", ring});
  if (plan.total() > plan.memory) refuse(plan, target.root().string());
  return plan;
}

}  // namespace canopy
