#include "offload/residency.h"

#include <algorithm>

namespace canopy {

namespace {

/// Rests a unit wherever the bytes at rest lag behind `share` of those that `open` units had so
/// far: the error never exceeds half a unit. Returns the bytes at rest.
std::size_t spread(std::span<const UnitLayout> units, const std::vector<bool>& open, double share,
                   std::vector<Tier>& tiers) {
  std::size_t at_rest = 0, seen = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (!open[i]) continue;
    const std::size_t bytes = units[i].read.slab_bytes;
    seen += bytes;
    const bool rests = static_cast<double>(at_rest) + static_cast<double>(bytes) / 2 <=
                       share * static_cast<double>(seen);
    tiers[i] = rests ? Tier::kHost : Tier::kDisk;
    if (rests) at_rest += bytes;
  }
  return at_rest;
}

}  // namespace

Residency none_resident(std::span<const UnitLayout> units) {
  return {std::vector<Tier>(units.size(), Tier::kDisk), false};
}

Residency all_resident(std::span<const UnitLayout> units) {
  return {std::vector<Tier>(units.size(), Tier::kHost), true};
}

Residency spread_resident(const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                          std::size_t bytes) {
  Residency residency = none_resident(units);
  std::vector<bool> open(units.size(), true);
  if (checkpoint.config().tied_head) {
    std::size_t head = 0;
    for (const UnitLayout& unit : units)
      if (unit.unit.part == Part::kHead) head += unit.read.slab_bytes;
    if (head <= bytes / 2) {
      for (std::size_t i = 0; i < units.size(); ++i)
        if (units[i].unit.part == Part::kHead) {
          residency.unit[i] = Tier::kHost;
          open[i] = false;
        }
      residency.table = true;
      bytes -= head;
    }
  }
  // The largest share that fits, by bisection: the bytes at rest grow with it, up to rounding.
  double low = 0, high = 1;
  std::vector<Tier> attempt = residency.unit;
  for (int step = 0; step < 40; ++step) {
    const double share = (low + high) / 2;
    if (spread(units, open, share, attempt) <= bytes) {
      low = share;
      residency.unit = attempt;
    } else {
      high = share;
    }
  }
  if (std::find(residency.unit.begin(), residency.unit.end(), Tier::kDisk) == residency.unit.end())
    residency.unit.front() = Tier::kDisk;
  return residency;
}

std::size_t travelling_bytes(std::span<const UnitLayout> units, const Residency& residency) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (residency.unit[i] == Tier::kDisk) bytes += units[i].read.slab_bytes;
  return bytes;
}

std::size_t least_ring(std::span<const UnitLayout> units, const Residency& residency) {
  std::size_t largest = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (residency.unit[i] == Tier::kDisk) largest = std::max(largest, units[i].read.slab_bytes);
  return 2 * largest;
}

}  // namespace canopy
