#pragma once
#include "offload/unit_layout.h"
#include "src/checkpoint/checkpoint.h"
#include "src/cluster/cluster.h"

namespace canopy {

/// Throws Error unless a target's files have what this process reads of them, `sweep`: they have
/// all rows, or those of this rank alone. `cluster`: null for a process that is alone.
void check_shard(const Checkpoint& target, const SweepLayout& sweep, const Cluster* cluster);

}  // namespace canopy
