#pragma once
#include <memory>
#include <vector>

#include "src/cluster/transport.h"

namespace canopy {

/// Makes the transports of ranks that are threads of this process, one each. A rank that aborts
/// breaks all their connections.
std::vector<std::unique_ptr<Transport>> make_thread_transports(int ranks);

}  // namespace canopy
