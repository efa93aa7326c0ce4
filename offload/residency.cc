#include "offload/residency.h"

#include <algorithm>

namespace canopy {

namespace {

/// Keeps a unit in `tier` wherever the bytes there are short of `share` of those that the open
/// units had so far: the error never exceeds half a unit. The others go to `below`. Returns the
/// bytes kept.
struct Spread {
  std::span<const std::size_t> bytes;  // of each unit
  const std::vector<bool>& open;
  Tier tier, below;

  std::size_t operator()(double share, std::vector<Tier>& tiers) const {
    std::size_t kept = 0, seen = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (!open[i]) continue;
      seen += bytes[i];
      const bool keep = static_cast<double>(kept) + static_cast<double>(bytes[i]) / 2 <=
                        share * static_cast<double>(seen);
      tiers[i] = keep ? tier : below;
      if (keep) kept += bytes[i];
    }
    return kept;
  }

  /// The largest share that fits, by bisection: the bytes kept grow with it, up to rounding.
  void fill(std::size_t most, std::vector<Tier>& tiers) const {
    double low = 0, high = 1;
    std::vector<Tier> attempt = tiers;
    (*this)(0, tiers);
    for (int step = 0; step < 40; ++step) {
      const double share = (low + high) / 2;
      if ((*this)(share, attempt) <= most) {
        low = share;
        tiers = attempt;
      } else {
        high = share;
      }
    }
  }
};

/// One open unit that has bytes must stay in `below`, where there is one.
void keep_one_below(const Spread& spread, std::vector<Tier>& tiers) {
  for (const Tier wanted : {spread.below, spread.tier})
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      if (tiers[i] != wanted || spread.bytes[i] == 0 || !spread.open[i]) continue;
      tiers[i] = spread.below;
      return;
    }
}

/// The layers that rest are the first and the last, the second and so on; the head rests too.
struct Ends {
  int layers, resting;

  bool rests(const Unit& unit) const {
    return unit.kind == UnitKind::kHead || unit.layer < (resting + 1) / 2 ||
           unit.layer >= layers - resting / 2;
  }
};

int fewest_ends(const SweepLayout& sweep) { return std::min(2, sweep.config.layers - 1); }

}  // namespace

Residency none_resident(const SweepLayout& sweep) {
  return {std::vector<Tier>(sweep.units.size(), Tier::kDisk), Tier::kDisk};
}

Residency all_resident(const SweepLayout& sweep, Tier tier) {
  return {std::vector<Tier>(sweep.units.size(), tier), tier};
}

Residency spread_resident(const SweepLayout& sweep, std::size_t bytes,
                          std::span<const Tier> on_device) {
  const std::vector<UnitLayout>& units = sweep.units;
  Residency residency = none_resident(sweep);
  std::vector<bool> open(units.size(), true);
  for (std::size_t i = 0; i < on_device.size(); ++i)
    if (on_device[i] == Tier::kDevice) {
      residency.unit[i] = Tier::kDevice;
      open[i] = false;
    }
  if (sweep.config.tied_head) {
    std::size_t head = 0;
    for (const UnitLayout& unit : units)
      if (unit.unit.kind == UnitKind::kHead) head += unit.read.slab_bytes;
    if (head <= bytes / 2) {
      for (std::size_t i = 0; i < units.size(); ++i)
        if (units[i].unit.kind == UnitKind::kHead && open[i]) {
          residency.unit[i] = Tier::kHost;
          open[i] = false;
        }
      residency.table = Tier::kHost;
      bytes -= head;
    }
  }
  std::vector<std::size_t> sizes;
  for (const UnitLayout& unit : units) sizes.push_back(unit.read.slab_bytes);
  const Spread spread{sizes, open, Tier::kHost, Tier::kDisk};
  spread.fill(bytes, residency.unit);
  keep_one_below(spread, residency.unit);
  return residency;
}

Residency ends_resident(const SweepLayout& sweep, std::size_t bytes, Tier tier) {
  Ends ends{sweep.config.layers, fewest_ends(sweep)};
  while (ends.resting + 1 < ends.layers && ends_bytes(sweep, ends.resting + 1, tier) <= bytes)
    ++ends.resting;
  Residency residency = tier == Tier::kDevice ? all_resident(sweep) : none_resident(sweep);
  for (std::size_t i = 0; i < sweep.units.size(); ++i)
    if (ends.rests(sweep.units[i].unit)) residency.unit[i] = tier;
  residency.table = Tier::kHost;
  return residency;
}

std::size_t ends_bytes(const SweepLayout& sweep, int layers, Tier tier) {
  const Ends ends{sweep.config.layers, std::max(layers, fewest_ends(sweep))};
  const bool on_device = tier == Tier::kDevice;
  std::size_t bytes = on_device || sweep.config.tied_head ? 0 : sweep.embedding.bytes;
  for (const UnitLayout& unit : sweep.units)
    if (ends.rests(unit.unit)) bytes += on_device ? unit.slot.bytes : unit.read.slab_bytes;
  return bytes;
}

Residency spread_on_device(const SweepLayout& sweep, std::size_t bytes) {
  const std::vector<UnitLayout>& units = sweep.units;
  Residency residency = all_resident(sweep);
  const std::vector<bool> open(units.size(), true);
  std::vector<std::size_t> sizes;
  for (const UnitLayout& unit : units) sizes.push_back(unit.slot.bytes);
  const Spread spread{sizes, open, Tier::kDevice, Tier::kHost};
  spread.fill(bytes, residency.unit);
  keep_one_below(spread, residency.unit);
  return residency;
}

std::size_t travelling_bytes(const SweepLayout& sweep, const Residency& residency) {
  const std::vector<UnitLayout>& units = sweep.units;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (residency.unit[i] == Tier::kDisk) bytes += units[i].read.slab_bytes;
  return bytes;
}

std::size_t least_ring(const SweepLayout& sweep, const Residency& residency) {
  const std::vector<UnitLayout>& units = sweep.units;
  std::size_t largest = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (residency.unit[i] == Tier::kDisk) largest = std::max(largest, units[i].read.slab_bytes);
  return 2 * largest;
}

std::size_t uploaded_bytes(const SweepLayout& sweep, const Residency& residency) {
  const std::vector<UnitLayout>& units = sweep.units;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (residency.unit[i] != Tier::kDevice) bytes += units[i].slot.bytes;
  return bytes;
}

std::size_t least_device_ring(const SweepLayout& sweep, const Residency& residency) {
  const std::vector<UnitLayout>& units = sweep.units;
  std::size_t largest = 0;
  for (std::size_t i = 0; i < units.size(); ++i)
    if (residency.unit[i] != Tier::kDevice) largest = std::max(largest, units[i].slot.bytes);
  return 2 * largest;
}

}  // namespace canopy
