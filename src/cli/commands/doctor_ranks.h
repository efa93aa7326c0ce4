#pragma once
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/cli/output/findings.h"
#include "src/cluster/cluster.h"

namespace canopy::cli {

/// Measures the network between the ranks, and compares them: program, instruction set, model (may
/// be null), disks. The first rank prints its own findings and those of all others. Throws Error as
/// Cluster::collect() does.
void compare_ranks(Cluster& cluster, const Checkpoint* model, const std::vector<Finding>& own,
                   bool as_object);

}  // namespace canopy::cli
