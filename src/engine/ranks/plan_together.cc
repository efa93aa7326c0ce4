#include "src/engine/ranks/plan_together.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "offload/residency.h"
#include "offload/unit_layout.h"
#include "src/base/error.h"

namespace canopy {

namespace {

/// The part of Decisions that ranks without a draft need.
struct TargetDecisions {
  Transformer::Limits limits;
  KvTypes kv;
  int max_sequences = 0, max_prompt = 0, context = 0, slots = 0, kv_blocks = 0;
};
static_assert(std::is_trivially_copyable_v<TargetDecisions>);

/// Asks for nothing but the target, read and multiplied as is decided.
PlanRequest without_draft(PlanRequest request) {
  static_cast<Speculation&>(request) = {};
  request.method = SpeculationMethod::kNone;
  request.cost.reset();
  request.acceptance.reset();
  request.least_context = 0;
  return request;
}

/// Returns how long reads take on the rank where they take longest, next to this one's. Rows are
/// cut between blocks, so a rank may have more bytes than its part; disks are as fast as the parts.
double longest_reads(const Checkpoint& target, Share share) {
  const int own = share.rank;
  std::vector<double> seconds;
  for (share.rank = 0; share.rank < share.ranks(); ++share.rank) {
    const SweepLayout sweep = lay_out_sweep(target, ExpertsAre::kInUnits, share);
    seconds.push_back(static_cast<double>(travelling_bytes(sweep, none_resident(sweep))) /
                      static_cast<double>(share.parts[static_cast<std::size_t>(share.rank)]));
  }
  const double mine = seconds[static_cast<std::size_t>(own)];
  return mine > 0 ? *std::ranges::max_element(seconds) / mine : 1;  // this one reads nothing
}

}  // namespace

Network network_of(const Checkpoint& target, const Share& share, const NetworkSpeed& speed) {
  const double sum = std::accumulate(share.parts.begin(), share.parts.end(), 0.0),
               largest = static_cast<double>(*std::ranges::max_element(share.parts));
  return {share.ranks(), largest / sum, speed.latency, speed.bytes_per_second,
          longest_reads(target, share)};
}

Network network_of(const Checkpoint& target, const Cluster* cluster) {
  return cluster ? network_of(target, cluster->share(), cluster->speed()) : Network();
}

void require_for_ranks(const PlanRequest& request) {
  require(!request.beams, "a beam search is not shared between processes yet: use one");
  require(!drafts_with_itself(request.method),
          "a model that drafts with its own layers needs all of their rows: give another draft, or "
          "use one process");
}

Plan plan_together(Cluster& cluster, const PlanRequest& request, const ModelSweeps& models,
                   std::uint64_t process_bytes, const ScratchBytes& scratch_bytes) {
  require_for_ranks(request);
  require(
      !models.target.config.recurrent(),
      "a model with recurrent layers (gated delta nets) is not shared between processes yet: use "
      "one");
  TargetDecisions decided;
  if (cluster.share().rank == 0) {
    Plan plan = make_plan(request, models, process_bytes, scratch_bytes);
    decided = {plan.target_limits, plan.kv,    plan.max_sequences, plan.max_prompt,
               plan.context,       plan.slots, plan.kv_blocks};
    cluster.announce(std::as_bytes(std::span(&decided, 1)));
    return plan;
  }
  const auto bytes = cluster.announce({});
  require(bytes.size() == sizeof decided, "the first rank's decisions are of another program");
  std::memcpy(&decided, bytes.data(), sizeof decided);
  Plan plan;
  plan.target_limits = decided.limits;
  plan.kv = decided.kv;
  plan.max_sequences = decided.max_sequences;
  plan.max_prompt = decided.max_prompt;
  plan.context = decided.context;
  plan.slots = decided.slots;
  plan.kv_blocks = plan.expected_blocks = decided.kv_blocks;
  static_cast<MemoryPlan&>(plan) =
      plan_memory(plan, without_draft(request), models, process_bytes, scratch_bytes);
  return plan;
}

}  // namespace canopy
