#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "offload/unit_layout.h"

namespace canopy {

/// Which weights stay in memory for a whole run; the others travel, once a sweep.
struct Residency {
  std::vector<bool> unit;  // of the sweep: its matrices rest
  bool table = false;      // the embedding table rests; else its rows are read when they are needed
};

/// Nothing rests but the vectors.
Residency none_resident(std::span<const UnitLayout> units);
/// Everything rests.
Residency all_resident(std::span<const UnitLayout> units);
/// As many bytes of units as `bytes` can hold (to within one unit), spread evenly over the sweep:
/// while units that rest are computed, others must be arriving, and a ring holds few of them. A
/// head that is also the embedding table rests first, where it takes no more than half: its rows
/// are then at hand too. One unit travels in any case.
Residency spread_resident(const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                          std::size_t bytes);

/// Bytes that travel in one sweep, as read.
std::size_t travelling_bytes(std::span<const UnitLayout> units, const Residency& residency);
/// The least ring that reads one travelling unit while another is in use: twice the largest.
std::size_t least_ring(std::span<const UnitLayout> units, const Residency& residency);

}  // namespace canopy
