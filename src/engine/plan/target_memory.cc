#include "src/engine/plan/target_memory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "offload/experts/expert_cache.h"
#include "offload/experts/host_experts.h"
#include "offload/experts/uploaded_experts.h"
#include "offload/streamer.h"
#include "offload/upload/device_weights.h"
#include "src/base/error.h"

namespace canopy {

namespace {

// Units in transit where the budget is better spent on weights at rest: enough to read on while the
// host is between two sweeps and while one unit's compute is slow.
constexpr std::size_t kSmoothUnits = 4;

}  // namespace

std::string in_mebibytes(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MiB", static_cast<double>(bytes) / 0x1p20);
  return text.data();
}

TargetMemory::TargetMemory(const SweepLayout& sweep, const SweepLayout* apart, bool drafts,
                           const LearnedRoutes& routes)
    : sweep_(sweep), apart_(apart), drafts_(drafts), routes_(routes) {
  const Residency none = none_resident(sweep_), on_device = rest(sweep_, 0, Tier::kDevice);
  whole_ = resident_bytes(sweep_);
  least_ = least_units(sweep_);
  if (apart_) {
    slot_ = ExpertCache::slot_bytes(*apart_);
    spare_slots_ = ExpertCache::spare_slots(*apart_);
    least_ = std::min(least_, least_units(*apart_) + spare_slots_ * slot_);
    device_slot_ = UploadedExperts::slot_bytes(*apart_);
    host_experts_ = HostExperts::bytes_needed(*apart_);
    shared_on_device_ = device_resident_bytes(*apart_);
  }
  whole_on_device_ = device_resident_bytes(sweep_);
  least_on_device_ =
      least_device_ring(sweep_, on_device) + DeviceWeights::bytes_needed(sweep_, on_device);
  if (apart_)
    least_on_device_ = std::min(least_on_device_, shared_on_device_ + spare_slots_ * device_slot_);
  least_beside_device_ =
      least_ring(sweep_, none) + Streamer::resting_bytes(sweep_, none) + staging_bytes(sweep_);
  if (apart_)
    least_beside_device_ =
        std::min(least_beside_device_, spare_slots_ * slot_ + staging_bytes(*apart_));
  travelling_ = travelling_bytes(sweep_, none);
  uploaded_ = uploaded_bytes(sweep_, none);
  for (const UnitLayout& unit : sweep_.units) {
    if (unit.unit.kind == UnitKind::kHead)
      head_rows_ += static_cast<double>(unit.unit.rows);
    else
      layer_bytes_ += static_cast<double>(unit.read.slab_bytes) / sweep_.config.layers;
  }
}

Residency TargetMemory::rest(const SweepLayout& sweep, std::uint64_t bytes, Tier tier) const {
  if (drafts_) return ends_resident(sweep, bytes, tier);
  return tier == Tier::kDevice ? spread_on_device(sweep, bytes) : spread_resident(sweep, bytes);
}

std::uint64_t TargetMemory::least_units(const SweepLayout& sweep) const {
  const Residency least = rest(sweep, 0, Tier::kHost);
  return least_ring(sweep, least) + Streamer::resting_bytes(sweep, least);
}

std::uint64_t TargetMemory::bytes_of_layers(int layers, bool on_device) const {
  if (layers >= sweep_.config.layers) return std::max(whole_, whole_on_device_);
  if (drafts_) return ends_bytes(sweep_, layers, on_device ? Tier::kDevice : Tier::kHost);
  return static_cast<std::uint64_t>(layers * layer_bytes_);
}

void TargetMemory::require_drafting(std::uint64_t resident, bool on_device) const {
  const Tier tier = on_device ? Tier::kDevice : Tier::kHost;
  const std::uint64_t least = drafts_ ? ends_bytes(sweep_, 0, tier) : 0;
  if (resident < least)
    throw Error("speculation (self-ssd) drafts with the weights that rest: at least " +
                in_mebibytes(least) + " of " + sweep_.root.string() + " must, not " +
                in_mebibytes(resident));
}

std::uint64_t TargetMemory::staging_bytes(const SweepLayout& sweep) const {
  return least_ring(sweep, none_resident(sweep)) + EmbeddingUpload::bytes_needed(sweep.embedding);
}

std::optional<TargetMemory::Left> TargetMemory::left_of(const MemoryPlan& plan) {
  if (plan.total() > plan.memory) return std::nullopt;
  Left left{plan.memory - plan.total(), 0};
  if (plan.device) {
    if (plan.device->total() > plan.device->memory) return std::nullopt;
    left.device = plan.device->memory - plan.device->total();
  }
  return left;
}

std::optional<WeightPlace> TargetMemory::place(const MemoryPlan& plan, const PlanRequest& request,
                                               std::uint64_t ring_wish) const {
  const auto left = left_of(plan);
  if (!left) return std::nullopt;
  return plan.device ? place_on_device(*left, request, ring_wish, plan.idle_kv_bytes)
                     : place_on_host(*left, request, ring_wish, plan.idle_kv_bytes);
}

bool TargetMemory::may_give_way(const PlanRequest& request, std::uint64_t idle_kv_bytes) const {
  // Weights that the user or a measurement fixed stay, and those that a draft is made of.
  return idle_kv_bytes > 0 && request.may_share_memory && !drafts_ && !request.resident &&
         !request.from_disk && !request.beams && !request.probe;
}

std::optional<WeightPlace> TargetMemory::place_on_host(const Left& host, const PlanRequest& request,
                                                       std::uint64_t ring_wish,
                                                       std::uint64_t idle_kv_bytes) const {
  const std::uint64_t left = host.host;
  if (request.resident.value_or(whole_) >= whole_ && whole_ <= left) {
    WeightPlace place;
    place.resident = true;
    place.at_rest = whole_;
    return place;
  }
  const bool give_way = may_give_way(request, idle_kv_bytes);
  if (give_way && !apart_) {
    auto place = place_units(sweep_, left, {}, ring_wish, true);
    if (!place) return std::nullopt;
    place->full = place->residency;
    place->residency = filled(sweep_, std::move(place->residency), idle_kv_bytes);
    place->sweep = travelling_bytes(sweep_, place->residency);
    return place;
  }
  // To measure the disk, whole layers travel, if they can.
  if (!apart_ || (request.from_disk && least_units(sweep_) <= left))
    return place_units(sweep_, left, request.resident, ring_wish);
  auto place = place_experts(left, request, ring_wish);
  // Experts stay, and can give way, if all that tokens share rests.
  if (place && give_way && place->ring == 0) fill_with_experts(*place, idle_kv_bytes, false);
  return place;
}

std::optional<WeightPlace> TargetMemory::place_units(const SweepLayout& sweep, std::uint64_t left,
                                                     std::optional<std::uint64_t> resident,
                                                     std::uint64_t ring_wish, bool give_way) const {
  const std::uint64_t least = least_units(sweep);
  const auto least_of = [&](const Residency& residency) {
    return least_ring(sweep, give_way ? fixed_part(sweep, residency) : residency);
  };
  if (left < least || resident.value_or(0) > left - least) return std::nullopt;

  // Spread what may stay, then hand back what the embedding table takes besides, if it stays, too.
  WeightPlace place;
  const Residency none = none_resident(sweep);
  const std::uint64_t smooth = least_ring(sweep, none) / 2 * kSmoothUnits;
  const std::uint64_t ring = std::min(std::max(smooth, ring_wish), left);
  const std::uint64_t beside_none = least_ring(sweep, none) + Streamer::resting_bytes(sweep, none);
  std::uint64_t may_rest = resident.value_or(left - std::max(ring, beside_none));
  while (true) {
    place.residency = rest(sweep, may_rest, Tier::kHost);
    place.at_rest = Streamer::resting_bytes(sweep, place.residency, give_way);
    const std::uint64_t over = place.at_rest + least_of(place.residency);
    if (over <= left) break;
    may_rest -= std::min(may_rest, over - left);
  }
  place.sweep = travelling_bytes(sweep, place.residency);
  // A ring that holds a whole sweep has nothing left to read ahead.
  place.ring = std::min(left - place.at_rest,
                        std::max<std::uint64_t>(place.sweep, least_of(place.residency)));
  return place;
}

void TargetMemory::enter_driver(MemoryPlan& plan, const Decisions& decisions,
                                const PlanRequest& request) const {
  // The draft's graph has all levels but the first, each as large as the figure is meant for; and
  // a tree may change its shape.
  const int levels = decisions.policy.shape.levels();
  const auto graphs = static_cast<std::uint64_t>(decisions.adaptive ? 2 * levels : levels);
  const std::uint64_t pinned = std::min(request.memory, travelling_ + staging_bytes(sweep_));
  plan.device->ledger.push_back(
      {"driver: kernels, graphs, tables of locked memory",
       request.driver.whole_units(
           request.driver.fixed + graphs * request.driver.graph +
           static_cast<std::uint64_t>(request.driver.of_pinned * static_cast<double>(pinned)))});
}

std::optional<WeightPlace> TargetMemory::place_on_device(const Left& left,
                                                         const PlanRequest& request,
                                                         std::uint64_t ring_wish,
                                                         std::uint64_t idle_kv_bytes) const {
  WeightPlace place;
  const std::optional<std::uint64_t> resident = request.resident;
  const auto whole = [&](std::uint64_t bytes) { return request.driver.whole_units(bytes); };
  const std::uint64_t whole_with_ids = whole(whole_on_device_) + request.driver.unit;
  const std::uint64_t room = left.device / request.driver.unit * request.driver.unit;
  if (!request.from_disk && resident.value_or(whole_on_device_) >= whole_on_device_ &&
      whole_with_ids <= room) {
    if (staging_bytes(sweep_) > left.host) return std::nullopt;
    place.resident = true;
    place.at_rest = whole_with_ids;
    place.host_at_rest = staging_bytes(sweep_);
    return place;
  }
  if (apart_ && !drafts_ && !request.from_disk)
    if (auto apart = place_experts_on_device(left, request, idle_kv_bytes)) return apart;
  const Residency fewest = rest(sweep_, 0, Tier::kDevice);
  const std::uint64_t least = whole(least_device_ring(sweep_, fewest));
  const std::uint64_t in_any_case = whole(DeviceWeights::bytes_needed(sweep_, fewest));
  if (room < least + in_any_case || resident.value_or(0) > room - least - in_any_case)
    return std::nullopt;
  const std::uint64_t ring = std::clamp<std::uint64_t>(
      whole(std::max(least / 2 * kSmoothUnits, ring_wish)), least, room - in_any_case);
  const std::uint64_t vectors = whole(DeviceWeights::bytes_needed(sweep_, none_resident(sweep_)));
  const std::uint64_t may_rest = resident.value_or(room - vectors - ring);
  place.residency = rest(sweep_, may_rest, Tier::kDevice);
  place.at_rest = whole(DeviceWeights::bytes_needed(sweep_, place.residency));
  place.upload = uploaded_bytes(sweep_, place.residency);
  // A ring that holds a whole sweep has nothing left to bring ahead.
  place.ring = std::min(
      room - place.at_rest,
      whole(std::max<std::uint64_t>(place.upload, least_device_ring(sweep_, place.residency))));
  if (!fill_host(left.host, request, place)) return std::nullopt;
  // Units come from host memory when they have given way, not from the disk.
  if (place.sweep == 0 && may_give_way(request, idle_kv_bytes)) {
    place.full = place.residency;
    place.residency = filled(sweep_, std::move(place.residency), idle_kv_bytes, Tier::kDevice);
    place.upload = uploaded_bytes(sweep_, place.residency);
  }
  return place;
}

/// Keeps what is not on the device in host memory, all of it or as much as fits next to a ring.
bool TargetMemory::fill_host(std::uint64_t left, const PlanRequest& request,
                             WeightPlace& place) const {
  const std::uint64_t staging = staging_bytes(sweep_);
  if (left < staging) return false;
  left -= staging;
  const std::uint64_t all = HostWeights::bytes_needed(sweep_, place.residency);
  if (!request.from_disk && all <= left) {
    place.host_at_rest = all + staging;
    return true;
  }
  const std::vector<Tier> on_device = place.residency.unit;
  const Residency none = none_resident(sweep_);
  const std::uint64_t ring = least_ring(sweep_, none) / 2 * kSmoothUnits;
  std::uint64_t may_rest = request.from_disk ? 0 : left - std::min(left, ring);
  while (true) {
    place.residency = spread_resident(sweep_, may_rest, on_device);
    const std::uint64_t at_rest = Streamer::resting_bytes(sweep_, place.residency);
    const std::uint64_t needed = at_rest + least_ring(sweep_, place.residency);
    if (needed <= left) {
      place.host_at_rest = at_rest + staging;
      place.sweep = travelling_bytes(sweep_, place.residency);
      place.host_ring =
          std::min(left - at_rest,
                   std::max<std::uint64_t>(place.sweep, least_ring(sweep_, place.residency)));
      return true;
    }
    if (may_rest == 0) return false;
    may_rest -= std::min(may_rest, needed - left);
  }
}

WeightPlan TargetMemory::seen(const WeightPlace& place, bool on_device) const {
  const SweepLayout& sweep = units_of(place.expert_slots > 0);
  WeightPlan seen;
  seen.ring_bytes = place.ring;
  seen.uploaded = on_device;
  seen.table_rests = place.resident || place.residency.table != Tier::kDisk;
  seen.resident_bytes = resident_of(place, on_device);
  if (on_device) seen.disk_bytes = place.sweep;
  if (place.expert_slots > 0) {
    seen.experts = {static_cast<int>(apart_->experts.size()) / sweep_.config.experts.count,
                    sweep_.config.experts.count, sweep_.config.experts.active, slot_of(on_device),
                    static_cast<int>(place.expert_slots - spare_slots_)};
    seen.experts.habits = routes_.habits(seen.experts);
    if (place.full_expert_slots > 0)
      seen.least_stay = static_cast<int>(place.full_expert_slots - spare_slots_);
    if (place.host_expert_slots > 0) {
      seen.host_experts = seen.experts;
      seen.host_experts.bytes = slot_;
      seen.host_experts.stay =
          std::min(seen.experts.stay + static_cast<int>(place.host_expert_slots - spare_slots_),
                   static_cast<int>(apart_->experts.size()));
    }
  }
  for (std::size_t i = 0; i < sweep.units.size(); ++i) {
    const Unit& unit = sweep.units[i].unit;
    SweepUnit one;
    one.kind = unit.kind;
    one.gathered = sweep.units[i].gathered;
    if (unit.kind != UnitKind::kHead) {
      one.layer_kind = sweep_.config.kind(unit.layer);
      one.window = sweep_.config.layer(unit.layer).window;
    }
    if (unit.kind == UnitKind::kHead && head_rows_ > 0)
      one.share = static_cast<double>(unit.rows) / head_rows_;
    if (!place.resident) {
      const Tier tier = place.residency.unit[i];
      if (on_device && tier != Tier::kDevice) one.bytes = sweep.units[i].slot.bytes;
      if (!on_device && tier == Tier::kDisk) one.bytes = sweep.units[i].read.slab_bytes;
      if (place.full && place.full->unit[i] == (on_device ? Tier::kHost : Tier::kDisk)) {
        one.gives_way = true;
        one.own_bytes = bytes_at_rest(sweep.units[i], on_device ? Tier::kDevice : Tier::kHost);
      }
    }
    seen.units.push_back(one);
  }
  return seen;
}

/// Target weights that stay where they are computed with.
std::uint64_t TargetMemory::resident_of(const WeightPlace& place, bool on_device) const {
  if (on_device && place.expert_slots > 0)
    return uploaded_bytes(*apart_, none_resident(*apart_)) +
           (place.expert_slots - spare_slots_) * device_slot_;
  if (on_device) return place.resident ? uploaded_ : uploaded_ - place.upload;
  if (place.expert_slots == 0) return place.resident ? travelling_ : travelling_ - place.sweep;
  return travelling_bytes(*apart_, none_resident(*apart_)) - place.sweep +
         (place.expert_slots - spare_slots_) * slot_;
}

WeightPlan TargetMemory::seen(const MemoryPlan& plan) const {
  WeightPlace place;
  place.resident = plan.resident;
  place.residency = plan.residency;
  place.ring = plan.ring_bytes;
  place.sweep = plan.sweep_bytes;
  place.expert_slots = plan.expert_slots;
  place.full_expert_slots = plan.full_expert_slots;
  if (plan.device) {
    place.upload = plan.device->upload_bytes;
    place.host_expert_slots = plan.device->host_expert_slots;
  }
  place.full = plan.full_residency;
  return seen(place, plan.device.has_value());
}

void TargetMemory::enter(MemoryPlan& plan, const WeightPlace& place) const {
  plan.resident = place.resident;
  auto& ledger = plan.device ? plan.device->ledger : plan.ledger;
  if (place.resident) {
    plan.resident_bytes = place.at_rest;
    plan.resident_layers = sweep_.config.layers;
    ledger.push_back({"target weights, all resident", place.at_rest});
  } else {
    plan.residency = place.residency;
    plan.sweep_bytes = place.sweep;
    plan.resident_bytes = resident_of(place, plan.device.has_value());
    plan.ring_bytes = place.ring;
    if (place.full) let_share(plan, *place.full);
    plan.expert_slots = place.expert_slots;
    if (place.full_expert_slots > 0) let_experts_share(plan, place);
    plan.resident_layers = static_cast<double>(plan.resident_bytes) / layer_bytes_;
    plan.ring_layers = static_cast<double>(plan.ring_bytes) / layer_bytes_;
    ledger.push_back({place.expert_slots > 0 ? "target weights at rest, shared by all tokens"
                      : place.full           ? "target weights at rest, with full KV caches"
                                             : "target weights at rest",
                      place.at_rest});
    if (place.expert_slots > 0) enter_experts(plan, place);
    if (place.ring > 0) ledger.push_back({kRingEntry, place.ring});
  }
  if (!plan.device) return;
  plan.device->upload_bytes = place.upload;
  const std::uint64_t most = place.full ? plan.full_sweep_bytes : place.upload;
  plan.device->host_bytes = most - std::min(most, place.sweep);
  plan.device->host_ring_bytes = place.host_ring;
  plan.device->host_expert_slots = place.host_expert_slots;
  std::string what = "target weights";
  if (place.host_expert_slots > 0) {
    what = std::to_string(place.host_expert_slots - spare_slots_) + " of " +
           std::to_string(apart_->experts.size()) + " experts, and those on their way,";
  } else if (place.expert_slots > 0) {
    what = "experts";
    plan.device->host_bytes = host_experts_;
  }
  plan.ledger.push_back({what + " in host memory, and while loading", place.host_at_rest});
  if (place.host_ring > 0) plan.ledger.push_back({"target ring from disk", place.host_ring});
}

/// The units that texts may make go, and their KV pools, are in one memory.
void TargetMemory::let_share(MemoryPlan& plan, const Residency& full) const {
  if (plan.device) {  // what rests with full pools has memory of its own
    plan.pool_bytes = plan.kv_bytes;
    plan.full_residency = full;
    plan.full_sweep_bytes = uploaded_bytes(sweep_, full);
    plan.full_resident_bytes = uploaded_ - plan.full_sweep_bytes;
    return;
  }
  const Residency fixed = fixed_part(sweep_, full);
  plan.pool_bytes =
      plan.kv_bytes + travelling_bytes(sweep_, fixed) - travelling_bytes(sweep_, full);
  plan.full_residency = full;
  plan.full_sweep_bytes = travelling_bytes(sweep_, full);
  plan.full_resident_bytes = travelling_ - plan.full_sweep_bytes;
}

/// The slots of experts that texts may make go, and their KV pools, are in one memory.
void TargetMemory::let_experts_share(MemoryPlan& plan, const WeightPlace& place) const {
  // On a device, the slots with full pools have memory of their own.
  const std::uint64_t slot = slot_of(plan.device.has_value()),
                      fixed = plan.device ? place.full_expert_slots : spare_slots_;
  plan.pool_bytes = plan.kv_bytes + (place.full_expert_slots - fixed) * slot;
  plan.full_expert_slots = place.full_expert_slots;
  plan.most_expert_slots = static_cast<std::size_t>(std::min<std::uint64_t>(
      fixed + plan.pool_bytes / slot, spare_slots_ + apart_->experts.size()));
  plan.full_sweep_bytes = place.sweep;
  plan.full_resident_bytes =
      plan.resident_bytes - (place.expert_slots - place.full_expert_slots) * slot;
}

std::string TargetMemory::least_memory(const MemoryPlan& plan) const {
  if (!plan.device) return in_mebibytes(plan.total() + least_);
  return in_mebibytes(plan.device->total() + least_on_device_) + " of GPU memory and " +
         in_mebibytes(plan.total() + least_beside_device_);
}

void TargetMemory::refuse(MemoryPlan plan, const PlanRequest& request) const {
  const auto& resident = request.resident;
  if (plan.device) {
    auto& device = *plan.device;
    device.ledger.push_back({"target: a ring of two units, norms",
                             request.driver.whole_units(least_on_device_) + request.driver.unit});
    plan.ledger.push_back({"target: a ring of two units, norms, buffers", least_beside_device_});
    if (device.total() > device.memory)
      throw too_small("a GPU memory budget", device.memory, device.total(), device.ledger);
    if (plan.total() > plan.memory)
      throw too_small("a memory budget", plan.memory, plan.total(), plan.ledger);
    throw Error("cannot keep " + in_mebibytes(resident.value_or(0)) +
                " of weights on the GPU: beside what must be there, " +
                in_mebibytes(device.memory - device.total()) + " are left of " +
                in_mebibytes(device.memory) + "; give more, or --resident auto");
  }
  const std::uint64_t fixed = plan.total();
  if (plan.memory >= fixed + least_ && resident)
    throw Error("cannot keep " + in_mebibytes(*resident) +
                " of weights resident: beside what must be there, " +
                in_mebibytes(plan.memory - fixed - least_) + " are left of the budget of " +
                in_mebibytes(plan.memory) + "; give more memory, or --resident auto");
  plan.ledger.push_back({apart_ ? "target: a ring of two units, norms, the experts of a token"
                         : drafts_
                             ? "target: a ring of two units, norms, what it drafts with at least"
                             : "target: a ring of two units, norms, rows of the embedding",
                         least_});
  throw too_small("a memory budget", plan.memory, plan.total(), plan.ledger);
}

BudgetError TargetMemory::too_small(const char* what, std::uint64_t budget, std::uint64_t least,
                                    const std::vector<LedgerEntry>& ledger) const {
  std::string message = std::string(what) + " of " + in_mebibytes(budget) + " is too small for " +
                        sweep_.root.string() + ": at least " + in_mebibytes(least) + " are needed";
  for (const LedgerEntry& entry : ledger)
    message += "\n  " + in_mebibytes(entry.bytes) + "  " + entry.what;
  return BudgetError(message);
}

}  // namespace canopy
