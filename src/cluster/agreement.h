#pragma once
#include <span>
#include <string>

#include "src/cluster/cluster.h"

namespace canopy {

/// A property that all ranks of a run must have alike, in words for the user.
struct SharedFact {
  std::string name, value;
};

/// Compares every rank's facts with the first one's. Throws Error on every rank where one differs:
/// with the rank, the fact and both values.
void agree(Cluster& cluster, std::span<const SharedFact> facts);

}  // namespace canopy
