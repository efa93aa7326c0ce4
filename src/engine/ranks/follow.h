#pragma once
#include <functional>

#include "src/cluster/cluster.h"
#include "src/engine/engine.h"

namespace canopy {

/// Opens the target; nothing else of the models is used.
using OpenTarget = std::function<Checkpoint()>;

/// Runs the sweeps of the first rank's engines, one engine after another, with this rank's rows,
/// until that has ended. `options.cluster` is this rank's, which is not the first. Plans in this
/// process' own budget for what the first rank decides, then loads. Throws Error on failures of
/// this rank or of another; Stopped on request while it loads.
void follow(const OpenTarget& open, const EngineOptions& options, const LoadProgress& progress = {},
            const std::stop_token& stop = {});

/// Has the ranks that follow end, where all is done. Called by the first.
void end_followers(Cluster& cluster);

}  // namespace canopy
