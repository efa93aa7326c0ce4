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

Residency fixed_part(const SweepLayout& sweep, const Residency& residency) {
  Residency fixed = none_resident(sweep);
  fixed.table = residency.table;
  if (residency.table != Tier::kHost || !sweep.config.tied_head) return fixed;
  for (std::size_t i = 0; i < sweep.units.size(); ++i)
    if (sweep.units[i].unit.kind == UnitKind::kHead) fixed.unit[i] = residency.unit[i];
  return fixed;
}

std::optional<std::size_t> next_change(const SweepLayout& sweep, const Residency& residency,
                                       Tier tier, const std::vector<bool>& may_change) {
  const std::size_t count = sweep.units.size();
  const auto bytes = [&](std::size_t i) { return sweep.units[i].read.slab_bytes; };
  const auto changes = [&](std::size_t i) { return residency.unit[i] == tier && bytes(i) > 0; };
  // Bytes from unit i on, in the cycle of sweeps, as far as units are (or are not) of the tier.
  const auto run = [&](std::size_t i, bool of_tier, std::size_t step) {
    std::size_t sum = 0;
    for (std::size_t n = 1; n < count; ++n) {
      i = (i + step) % count;
      if (bytes(i) > 0 && changes(i) != of_tier) break;
      sum += bytes(i);
    }
    return sum;
  };
  const auto both_ways = [&](std::size_t i, bool of_tier) {
    return std::pair(run(i, of_tier, 1), run(i, of_tier, count - 1));
  };
  // The change joins what lies on both sides of the unit: the less, the better. Where that is
  // nothing, the unit in the middle of the longest run is the best.
  std::optional<std::size_t> best;
  std::pair<std::size_t, std::size_t> least{};
  for (std::size_t i = 0; i < count; ++i) {
    if (!changes(i) || !may_change[i]) continue;
    const auto joined = both_ways(i, false), around = both_ways(i, true);
    const std::pair cost{joined.first + joined.second,
                         SIZE_MAX - std::min(around.first, around.second)};
    if (best && cost >= least) continue;
    best = i;
    least = cost;
  }
  return best;
}

std::size_t bytes_at_rest(const UnitLayout& unit, Tier tier) {
  return tier == Tier::kDevice ? unit.slot.bytes : unit.read.slab_bytes;
}

std::optional<std::size_t> next_to_rest(const SweepLayout& sweep, const Residency& residency,
                                        std::size_t bytes, Tier tier) {
  const std::size_t travelling =
      tier == Tier::kDevice ? uploaded_bytes(sweep, residency) : travelling_bytes(sweep, residency);
  std::vector<bool> fits;
  for (const UnitLayout& unit : sweep.units) {
    const std::size_t own = bytes_at_rest(unit, tier);
    fits.push_back(own <= bytes && own < travelling);
  }
  return next_change(sweep, residency, tier == Tier::kDevice ? Tier::kHost : Tier::kDisk, fits);
}

std::optional<std::size_t> next_to_travel(const SweepLayout& sweep, const Residency& residency,
                                          std::size_t bytes, std::vector<bool> may_change) {
  const auto own = [&](std::size_t i) { return bytes_at_rest(sweep.units[i], Tier::kHost); };
  std::size_t least = SIZE_MAX;
  for (std::size_t i = 0; i < may_change.size(); ++i)
    if (may_change[i] && residency.unit[i] == Tier::kHost && own(i) >= bytes)
      least = std::min(least, own(i));
  if (least < SIZE_MAX)
    for (std::size_t i = 0; i < may_change.size(); ++i)
      may_change[i] = may_change[i] && own(i) >= bytes && own(i) <= least + least / 4;
  return next_change(sweep, residency, Tier::kHost, may_change);
}

Residency filled(const SweepLayout& sweep, Residency residency, std::size_t bytes, Tier tier) {
  while (const auto unit = next_to_rest(sweep, residency, bytes, tier)) {
    residency.unit[*unit] = tier;
    bytes -= bytes_at_rest(sweep.units[*unit], tier);
  }
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
