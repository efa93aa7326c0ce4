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

// Until a plan is made from measurements (a later command), a tree whose arithmetic hides behind
// most disks: 40 rows cost two AVX-512 cores about as long as reading their 16-bit weights at
// 2.5 GB/s, measured; a self-draft has 5 tokens of it accepted, and each level costs one pass of
// it.
constexpr int kTreeSize = 40, kTreeLevels = 12, kChainSize = 8;
// The shape that SpecInfer is measured with on models in memory (arXiv:2402.12374, Table 4); it has
// about as many nodes.
constexpr int kSequences = 5, kSequenceLength = 8;

// What comes on top of everything counted: thread stacks, page tables, the rings of the kernel,
// allocator slack, the text itself. Held against a cgroup's own figure by tests/engine/memory_test.
constexpr std::uint64_t kAllowance = 24u << 20;

std::string mebibytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB", static_cast<double>(bytes) / 0x1p20);
  return text.data();
}

// Rows of a sweep that trees of a given size may fill together, where several sequences share it:
// what a model works on at once (Transformer::Limits::chunk).
constexpr int kGivenRows = 256;

/// How many sequences share a sweep if memory allows. Trees that are chosen here split the nodes
/// that one sequence would have had, down to a root and a child each; given ones are as large as
/// they are.
int choose_sequences(const PlanRequest& request, Spec spec) {
  if (request.probe) return request.max_sequences;
  const int given = request.shape ? request.shape->size() : request.tree_size;
  int fit = kTreeSize;
  if (spec != Spec::kNone) fit = given != 0 ? kGivenRows / given : kTreeSize / 2;
  return std::clamp(fit, 1, request.max_sequences);
}

/// The tree of each of `sequences` that share a sweep.
TreeShape choose_shape(const PlanRequest& request, Spec spec, int sequences) {
  if (request.shape && spec != Spec::kNone) return *request.shape;
  const int share = std::max(2, kTreeSize / sequences);
  switch (spec) {
    case Spec::kChain:
      return TreeShape::chain(request.tree_size != 0 ? request.tree_size
                                                     : std::min(kChainSize, share));
    case Spec::kSequoia:
    case Spec::kTopK: {
      const int size = request.tree_size != 0 ? request.tree_size : share;
      const int levels = request.tree_levels != 0 ? request.tree_levels : kTreeLevels;
      return best_tree(size, std::min(levels, size), default_acceptance(request.temperature));
    }
    case Spec::kSpecInfer:
    case Spec::kSpecTr:
    case Spec::kNaive:
      return TreeShape::sequences(std::max(1, kSequences / sequences),
                                  std::min(kSequenceLength, share - 1));
    default:
      return TreeShape::chain(1);
  }
}

/// At temperature 0 independent draws would all be the same token, and draws without replacement
/// arbitrary after the first: the draft's best tokens are every method's children.
Drawing choose_drawing(Spec spec, double temperature) {
  if (temperature == 0) return Drawing::kTopK;
  switch (spec) {
    case Spec::kSpecInfer:
      return Drawing::kSpecInfer;
    case Spec::kSpecTr:
      return Drawing::kSpecTr;
    case Spec::kNaive:
      return Drawing::kNaive;
    case Spec::kTopK:
      return Drawing::kTopK;
    default:
      return Drawing::kSequoia;
  }
}

// Units in transit where the budget is better spent on weights at rest: enough to read on while the
// host is between two sweeps and while one unit's compute is slow.
constexpr std::size_t kSmoothUnits = 4;

[[noreturn]] void refuse(const Plan& plan, const std::string& what) {
  std::string message = "a memory budget of " + mebibytes(plan.memory) + " is too small for " +
                        what + ": at least " + mebibytes(plan.total()) + " are needed";
  for (const LedgerEntry& entry : plan.ledger)
    message += "\n  " + mebibytes(entry.bytes) + "  " + entry.what;
  throw Error(message);
}

/// The target's own part of the budget: where its weights lie.
struct TargetMemory {
  const Checkpoint& target;
  std::vector<UnitLayout> units = lay_out_units(target, kReadAlignment);
  std::uint64_t whole = RestingWeights::bytes_needed(target, units, all_resident(units));
  /// A ring of two units and what never travels.
  std::uint64_t least = least_ring(units, none_resident(units)) +
                        Streamer::resting_bytes(target, units, none_resident(units));

  void place(Plan& plan, const PlanRequest& request) const;
};

/// What is left holds the whole target, or weights at rest and a ring.
void TargetMemory::place(Plan& plan, const PlanRequest& request) const {
  auto& ledger = plan.ledger;
  const std::uint64_t fixed = plan.total();
  const Residency none = none_resident(units);
  const std::uint64_t model = travelling_bytes(units, none);
  double layer = 0;
  for (const UnitLayout& unit : units)
    if (unit.unit.part != Part::kHead) layer += static_cast<double>(unit.read.slab_bytes);
  layer /= target.config().layers;

  if (request.resident.value_or(whole) >= whole && fixed + whole <= plan.memory) {
    plan.resident = true;
    plan.resident_bytes = whole;
    plan.resident_layers = target.config().layers;
    ledger.push_back({"target weights, all resident", whole});
    return;
  }
  const std::uint64_t left = plan.memory > fixed ? plan.memory - fixed : 0;
  if (left < least) {
    ledger.push_back({"target: a ring of two units, norms, rows of the embedding", least});
    refuse(plan, target.root().string());
  }

  // Spread what may rest, then hand back what the embedding table, if it rests too, takes beside.
  const std::uint64_t smooth = least_ring(units, none) / 2 * kSmoothUnits;
  const std::uint64_t small_ring = std::min<std::uint64_t>(smooth, left);
  if (request.resident && *request.resident > left - least)
    throw Error("cannot keep " + mebibytes(*request.resident) +
                " of weights resident: beside what must be there, " + mebibytes(left - least) +
                " are left of the budget of " + mebibytes(plan.memory) +
                "; give more memory, or --resident auto");
  std::uint64_t may_rest = request.resident.value_or(left - std::max(small_ring, least));
  const auto beside_ring = [&] { return Streamer::resting_bytes(target, units, plan.residency); };
  do {
    plan.residency = spread_resident(target, units, may_rest);
    const std::uint64_t over = beside_ring() + least_ring(units, plan.residency);
    if (over <= left) break;
    may_rest -= std::min(may_rest, over - left);
  } while (true);

  plan.sweep_bytes = travelling_bytes(units, plan.residency);
  plan.resident_bytes = model - plan.sweep_bytes;
  // A ring that holds a whole sweep has nothing left to read ahead.
  plan.ring_bytes =
      std::min(left - beside_ring(),
               std::max<std::uint64_t>(plan.sweep_bytes, least_ring(units, plan.residency)));
  plan.resident_layers = static_cast<double>(plan.resident_bytes) / layer;
  plan.ring_layers = static_cast<double>(plan.ring_bytes) / layer;
  ledger.push_back({"target weights at rest", beside_ring()});
  ledger.push_back({"target ring", plan.ring_bytes});
}

/// Everything but the target's weights, for `sequences` that share a sweep.
Plan lay_out(const PlanRequest& request, Spec spec, int sequences, const ModelConfig& t,
             const Checkpoint* draft, std::uint64_t process_bytes, const Ops& ops) {
  Plan plan;
  plan.memory = request.memory;
  plan.kv = request.kv;
  plan.spec = spec;
  plan.max_sequences = sequences;
  plan.max_prompt = request.max_prompt;
  plan.probe = request.probe;
  plan.policy.shape = choose_shape(request, plan.spec, sequences);
  if (request.probe)
    plan.policy.shape = TreeShape::branching(
        std::array{std::min({kProbeChildren, t.vocab, draft->config().vocab})});
  plan.policy.drawing = choose_drawing(plan.spec, request.temperature);
  plan.policy.max_requests = sequences;
  const int nodes = request.probe ? 1 : plan.policy.shape.size();  // that a model runs
  plan.slots = request.context + nodes;
  plan.target_limits.max_nodes = sequences * (request.max_prompt + nodes);
  plan.target_limits.max_tree = sequences * nodes;
  plan.target_limits.max_logit_rows = std::max(sequences * nodes, request.logit_rows);
  plan.target_limits.max_context = plan.slots;

  const auto caches = [&](const char* whose) {
    const std::string slots = std::to_string(plan.slots) + " slots";
    return std::string(whose) + (sequences == 1
                                     ? " KV cache, " + slots
                                     : " KV caches, " + std::to_string(sequences) + " of " + slots);
  };
  const auto each = static_cast<std::uint64_t>(sequences);
  auto& ledger = plan.ledger;
  ledger.push_back({"the process as it stands: code, libraries, tokenizer", process_bytes});
  ledger.push_back({"allowance: thread stacks, page tables, text", kAllowance});
  std::size_t scratch = ops.scratch_bytes(Transformer::workload(t, plan.target_limits));
  if (plan.spec != Spec::kNone) {
    const ModelConfig& d = draft->config();
    plan.policy.vocab = std::min(t.vocab, d.vocab);
    plan.draft_limits.max_logit_rows = DraftPolicy::widest_forward(plan.policy);
    plan.draft_limits.max_nodes = sequences * std::max(request.max_prompt, nodes);
    plan.draft_limits.max_tree = sequences * nodes;
    plan.draft_limits.max_context = plan.slots;
    ledger.push_back({"draft weights", resident_bytes(*draft)});
    ledger.push_back({caches("draft"), each * KvCache::bytes_needed(d, plan.slots, plan.kv)});
    ledger.push_back(
        {"draft activations and logits", Transformer::activation_bytes(d, plan.draft_limits)});
    ledger.push_back({"draft probabilities", DraftPolicy::device_bytes(plan.policy)});
    scratch = std::max(scratch, ops.scratch_bytes(Transformer::workload(d, plan.draft_limits)));
  }
  ledger.push_back({caches("target"), each * KvCache::bytes_needed(t, plan.slots, plan.kv)});
  ledger.push_back(
      {"target activations and logits", Transformer::activation_bytes(t, plan.target_limits)});
  ledger.push_back({"verification", Verifier::device_bytes(t.vocab)});
  ledger.push_back({"scratch of the kernels", scratch});
  return plan;
}

}  // namespace

const char* name(Spec spec) {
  const auto* const named = std::find_if(kSpecNames.begin(), kSpecNames.end(),
                                         [&](const auto& entry) { return entry.first == spec; });
  return named->second;
}

std::uint64_t Plan::total() const {
  std::uint64_t sum = 0;
  for (const LedgerEntry& entry : ledger) sum += entry.bytes;
  return sum;
}

Plan make_plan(const PlanRequest& request, const Checkpoint& target, const Checkpoint* draft,
               std::uint64_t process_bytes, const Ops& ops) {
  require(request.max_sequences >= 1, "a plan is for at least one sequence");
  const Spec spec = request.spec != Spec::kAuto ? request.spec
                    : draft                     ? Spec::kSequoia
                                                : Spec::kNone;
  if (spec != Spec::kNone && draft == nullptr)
    throw Error("speculation (" + std::string(name(spec)) + ") needs a draft model");
  require(!request.probe || spec != Spec::kNone, "acceptance is measured of a draft and a target");
  const TargetMemory weights{target};
  const std::uint64_t least = std::min(weights.whole, weights.least + request.resident.value_or(0));
  int sequences = choose_sequences(request, spec);
  const auto lay_out_for = [&](int count) {
    return lay_out(request, spec, count, target.config(), draft, process_bytes, ops);
  };
  Plan plan = lay_out_for(sequences);
  while (sequences > 1 && plan.total() + least > plan.memory) plan = lay_out_for(--sequences);
  weights.place(plan, request);
  return plan;
}

}  // namespace canopy
