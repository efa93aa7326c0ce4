// Experts of a mixture in a cache: where they lie, and what of that is said.
#include <algorithm>
#include <string>

#include "offload/experts/expert_cache.h"
#include "offload/experts/uploaded_experts.h"
#include "offload/streamer.h"
#include "src/engine/plan/target_memory.h"

namespace canopy {

std::optional<WeightPlace> TargetMemory::place_experts(std::uint64_t left,
                                                       const PlanRequest& request,
                                                       std::uint64_t ring_wish) const {
  const std::uint64_t spare = spare_slots_ * slot_;
  if (left < spare) return std::nullopt;
  left -= spare;
  const SweepLayout& sweep = *apart_;
  // First comes what every sweep reads, then what only some do.
  WeightPlace place;
  place.residency = all_resident(sweep);
  place.residency.table = sweep.config.tied_head ? Tier::kHost : Tier::kDisk;
  place.at_rest = Streamer::resting_bytes(sweep, place.residency);
  std::uint64_t more = 0;  // slots, for experts that stay
  const std::uint64_t shared = travelling_bytes(sweep, none_resident(sweep));
  const auto& resident = request.resident;
  if (place.at_rest <= left && resident.value_or(shared) >= shared) {
    const std::uint64_t room = (left - place.at_rest) / slot_;
    more = std::min<std::uint64_t>(resident ? (*resident - shared) / slot_ : room,
                                   sweep.experts.size());
    if (more > room) return std::nullopt;
  } else {
    const auto units = place_units(sweep, left, resident, ring_wish);
    if (!units) return std::nullopt;
    place = *units;
  }
  place.expert_slots = static_cast<std::size_t>(spare_slots_ + more);
  place.expert_bytes = place.expert_slots * slot_;
  return place;
}

void TargetMemory::fill_with_experts(WeightPlace& place, std::uint64_t idle_kv_bytes,
                                     bool on_device) const {
  const std::size_t full = place.expert_slots;
  place.expert_slots = std::min(full + static_cast<std::size_t>(idle_kv_bytes / slot_of(on_device)),
                                static_cast<std::size_t>(spare_slots_) + apart_->experts.size());
  if (place.expert_slots > full) place.full_expert_slots = full;
}

std::optional<WeightPlace> TargetMemory::place_experts_on_device(
    const Left& left, const PlanRequest& request, std::uint64_t idle_kv_bytes) const {
  const auto whole = [&](std::uint64_t bytes) { return request.driver.whole_units(bytes); };
  WeightPlace place;
  place.residency = all_resident(*apart_, Tier::kDevice);
  place.at_rest = whole(shared_on_device_) + request.driver.unit;
  if (host_experts_ + staging_bytes(*apart_) <= left.host) {
    place.host_at_rest = host_experts_ + staging_bytes(*apart_);
  } else {
    const std::uint64_t slots = (left.host - std::min(left.host, staging_bytes(*apart_))) / slot_;
    if (slots < spare_slots_) return std::nullopt;
    place.host_expert_slots = static_cast<std::size_t>(slots);
    place.host_at_rest = slots * slot_ + staging_bytes(*apart_);
  }
  const std::uint64_t room = left.device / request.driver.unit * request.driver.unit;
  const std::uint64_t spare = spare_slots_ * device_slot_;
  if (place.at_rest + whole(spare) > room) return std::nullopt;
  const std::uint64_t most = (room - place.at_rest - spare) / device_slot_;
  std::uint64_t stay = std::min<std::uint64_t>(most, apart_->experts.size());
  if (request.resident) {
    const std::uint64_t shared = uploaded_bytes(*apart_, none_resident(*apart_));
    if (*request.resident < shared) return std::nullopt;
    stay = std::min<std::uint64_t>((*request.resident - shared) / device_slot_,
                                   apart_->experts.size());
    if (stay > most) return std::nullopt;
  }
  place.expert_slots = static_cast<std::size_t>(spare_slots_ + stay);
  place.expert_bytes = whole(place.expert_slots * device_slot_);
  if (may_give_way(request, idle_kv_bytes)) fill_with_experts(place, idle_kv_bytes, true);
  return place;
}

std::optional<std::string> TargetMemory::scarcity(const MemoryPlan& plan) const {
  if (apart_ && plan.device && !plan.resident && plan.expert_slots == 0)
    return "layers travel to the GPU with all of their experts: to have those that texts choose "
           "there takes at least " +
           in_mebibytes(shared_on_device_ + spare_slots_ * device_slot_) +
           " of GPU memory for weights, and " +
           in_mebibytes(spare_slots_ * slot_ + staging_bytes(*apart_)) + " of the host's";
  if (plan.expert_slots == 0) return std::nullopt;
  const ExpertReads experts = seen(plan).experts;
  const int token = experts.layers * experts.active;
  if (experts.stay >= token) return std::nullopt;
  return "memory for " + std::to_string(experts.stay) + " of " +
         std::to_string(experts.layers * experts.count) + " experts, where a token asks for " +
         std::to_string(token) + ": most are " +
         (plan.device ? "copied from host memory" : "read from disk") + " for each token; " +
         in_mebibytes(static_cast<std::uint64_t>(token - experts.stay) * experts.bytes) +
         " more would hold a token's";
}

void TargetMemory::enter_experts(MemoryPlan& plan, const WeightPlace& place) const {
  const std::uint64_t spare = spare_slots_ * slot_of(plan.device.has_value());
  const bool shares = place.full_expert_slots > 0;
  const std::size_t stay = (shares ? place.full_expert_slots : place.expert_slots) - spare_slots_;
  const std::size_t all = apart_->experts.size();
  auto& ledger = plan.device ? plan.device->ledger : plan.ledger;
  ledger.push_back({std::string(kExpertCacheEntry) + ": " + std::to_string(stay) + " of " +
                        std::to_string(all) + " experts stay" +
                        (shares ? " with full KV caches" : ""),
                    place.expert_bytes - spare});
  ledger.push_back({"experts in use and on their way", spare});
}

}  // namespace canopy
