#pragma once
#include "src/checkpoint/checkpoint.h"
#include "src/cluster/cluster.h"
#include "src/engine/plan/plan.h"

namespace canopy {

/// Plans for all ranks of a run: the first decides, by its own budget and request, and each lays
/// its memory out for what is decided, in its own. Throws Error, on every rank: BudgetError of the
/// rank whose budget is too small.
Plan plan_together(Cluster& cluster, const PlanRequest& request, const ModelSweeps& models,
                   std::uint64_t process_bytes, const ScratchBytes& scratch_bytes);

/// Returns what the planner sees of ranks that share a model, whose network has this speed.
Network network_of(const Checkpoint& target, const Share& share, const NetworkSpeed& speed);
/// The same of a cluster that has measured it; of a process alone where there is none.
Network network_of(const Checkpoint& target, const Cluster* cluster);

/// Throws Error where a request is for what several processes cannot do yet.
void require_for_ranks(const PlanRequest& request);

}  // namespace canopy
