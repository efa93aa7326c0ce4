#include "src/engine/target_memory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "offload/streamer.h"
#include "src/base/error.h"

namespace canopy {

namespace {

// Units in transit where the budget is better spent on weights at rest: enough to read on while the
// host is between two sweeps and while one unit's compute is slow.
constexpr std::size_t kSmoothUnits = 4;

std::string mebibytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB", static_cast<double>(bytes) / 0x1p20);
  return text.data();
}

}  // namespace

TargetMemory::TargetMemory(const Checkpoint& target)
    : target_(target), units_(lay_out_units(target, kReadAlignment)) {
  const Residency none = none_resident(units_);
  whole_ = RestingWeights::bytes_needed(target, units_, all_resident(units_));
  least_ = least_ring(units_, none) + Streamer::resting_bytes(target, units_, none);
  travelling_ = travelling_bytes(units_, none);
  for (const UnitLayout& unit : units_) {
    if (unit.unit.part == Part::kHead)
      head_rows_ += static_cast<double>(unit.unit.rows);
    else
      layer_bytes_ += static_cast<double>(unit.read.slab_bytes) / target.config().layers;
  }
}

std::optional<WeightPlace> TargetMemory::place(std::uint64_t left,
                                               std::optional<std::uint64_t> resident,
                                               std::uint64_t ring_wish) const {
  WeightPlace place;
  if (resident.value_or(whole_) >= whole_ && whole_ <= left) {
    place.resident = true;
    place.at_rest = whole_;
    return place;
  }
  if (left < least_ || resident.value_or(0) > left - least_) return std::nullopt;

  // Spread what may rest, then hand back what the embedding table, if it rests too, takes beside.
  const Residency none = none_resident(units_);
  const std::uint64_t smooth = least_ring(units_, none) / 2 * kSmoothUnits;
  const std::uint64_t ring = std::min(std::max(smooth, ring_wish), left);
  std::uint64_t may_rest = resident.value_or(left - std::max(ring, least_));
  const auto beside_ring = [&] {
    return Streamer::resting_bytes(target_, units_, place.residency);
  };
  while (true) {
    place.residency = spread_resident(target_, units_, may_rest);
    place.at_rest = beside_ring();
    const std::uint64_t over = place.at_rest + least_ring(units_, place.residency);
    if (over <= left) break;
    may_rest -= std::min(may_rest, over - left);
  }
  place.sweep = travelling_bytes(units_, place.residency);
  // A ring that holds a whole sweep has nothing left to read ahead.
  place.ring = std::min(left - place.at_rest,
                        std::max<std::uint64_t>(place.sweep, least_ring(units_, place.residency)));
  return place;
}

WeightPlan TargetMemory::seen(const WeightPlace& place) const {
  WeightPlan seen;
  seen.ring_bytes = place.ring;
  seen.resident_bytes = travelling_ - place.sweep;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const Unit& unit = units_[i].unit;
    SweepUnit one;
    one.part = unit.part == Part::kAttention ? SweepUnit::Part::kAttention
               : unit.part == Part::kMlp     ? SweepUnit::Part::kMlp
                                             : SweepUnit::Part::kHead;
    if (unit.part == Part::kHead) one.share = static_cast<double>(unit.rows) / head_rows_;
    if (!place.resident && place.residency.unit[i] == Tier::kDisk)
      one.bytes = units_[i].read.slab_bytes;
    seen.units.push_back(one);
  }
  return seen;
}

void TargetMemory::enter(Plan& plan, const WeightPlace& place) const {
  plan.resident = place.resident;
  if (place.resident) {
    plan.resident_bytes = whole_;
    plan.resident_layers = target_.config().layers;
    plan.ledger.push_back({"target weights, all resident", whole_});
    return;
  }
  plan.residency = place.residency;
  plan.sweep_bytes = place.sweep;
  plan.resident_bytes = travelling_ - place.sweep;
  plan.ring_bytes = place.ring;
  plan.resident_layers = static_cast<double>(plan.resident_bytes) / layer_bytes_;
  plan.ring_layers = static_cast<double>(plan.ring_bytes) / layer_bytes_;
  plan.ledger.push_back({"target weights at rest", place.at_rest});
  plan.ledger.push_back({"target ring", place.ring});
}

void TargetMemory::refuse(Plan plan, std::optional<std::uint64_t> resident) const {
  const std::uint64_t fixed = plan.total();
  if (plan.memory >= fixed + least_ && resident)
    throw Error("cannot keep " + mebibytes(*resident) +
                " of weights resident: beside what must be there, " +
                mebibytes(plan.memory - fixed - least_) + " are left of the budget of " +
                mebibytes(plan.memory) + "; give more memory, or --resident auto");
  plan.ledger.push_back({"target: a ring of two units, norms, rows of the embedding", least_});
  std::string message = "a memory budget of " + mebibytes(plan.memory) + " is too small for " +
                        target_.root().string() + ": at least " + mebibytes(plan.total()) +
                        " are needed";
  for (const LedgerEntry& entry : plan.ledger)
    message += "\n  " + mebibytes(entry.bytes) + "  " + entry.what;
  throw Error(message);
}

}  // namespace canopy
