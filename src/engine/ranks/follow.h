#pragma once
#include "src/cluster/cluster.h"
#include "src/engine/engine.h"

namespace canopy {

/// Runs the sweeps that the first rank's engine runs, with this rank's rows, until that has ended.
/// `options.cluster` is this rank's, which is not the first; of the models only the target is used.
/// Plans in this process' own budget for what the first rank decides, then loads. Throws Error on
/// failures of this rank or of another; Stopped on request.
void follow(ModelFiles models, const EngineOptions& options, const LoadProgress& progress = {},
            std::stop_token stop = {});

/// Has the ranks that follow end, where all is done. Called by the first.
void end_followers(Cluster& cluster);

}  // namespace canopy
