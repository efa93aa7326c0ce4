#pragma once
// Private to make_plan().
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "offload/residency.h"
#include "planner/cost_model.h"
#include "src/base/error.h"
#include "src/engine/plan/plan.h"

namespace canopy {

std::string in_mebibytes(std::uint64_t bytes);  // "1.5 MiB"

/// Place of the target's weights.
struct WeightPlace {
  bool resident = false;  // all of them, where they are computed with
  Residency residency;    // else
  // Bytes where they are computed with, and those that are read from disk in every sweep.
  std::uint64_t at_rest = 0, ring = 0, sweep = 0;
  // Places of units with full KV pools, if they give way to texts. Then `at_rest` and `ring` are
  // for these, and the others are for the texts that are expected.
  std::optional<Residency> full;
  // Slots of an expert cache, and their bytes; then the residency is of the layout with experts
  // apart.
  std::size_t expert_slots = 0;
  // Number of these with full KV pools, if experts give way to texts; then `expert_bytes` is for
  // them.
  std::size_t full_expert_slots = 0;
  std::uint64_t expert_bytes = 0;
  std::size_t host_expert_slots = 0;  // as MemoryPlan::DevicePart has them
  // Bytes on the host besides, and those that go to the device in every sweep: of a device with
  // memory of its own.
  std::uint64_t host_at_rest = 0, host_ring = 0, upload = 0;
};

/// The target's own part of the budget.
class TargetMemory {
 public:
  /// The sweep must outlive this, and `apart`, with experts apart, which a mixture has. `drafts`:
  /// with what rests of it.
  TargetMemory(const SweepLayout& sweep, const SweepLayout* apart, bool drafts,
               const LearnedRoutes& routes);

  /// Bytes of `layers` layers, with the head where the target drafts with what rests; of everything
  /// where there are no more layers.
  std::uint64_t bytes_of_layers(int layers, bool on_device) const;
  /// Throws Error where the target drafts with what rests and `resident` bytes are too few for it.
  void require_drafting(std::uint64_t resident, bool on_device) const;
  /// Places what the plan's budget leaves room for, next to what it has: the whole target, or
  /// weights at rest and a ring of at least `ring_wish` bytes if that can be. Nothing if it does
  /// not fit.
  std::optional<WeightPlace> place(const MemoryPlan& plan, const PlanRequest& request,
                                   std::uint64_t ring_wish) const;
  /// The same as the planner sees it.
  WeightPlan seen(const WeightPlace& place, bool on_device) const;
  WeightPlan seen(const MemoryPlan& plan) const;
  /// Says, in words for the user, that fewer experts stay than a token asks for, or none by
  /// themselves; nothing: more do.
  std::optional<std::string> scarcity(const MemoryPlan& plan) const;
  /// The driver's share of a device with memory of its own, in its ledger: for a plan that has
  /// everything but the weights.
  void enter_driver(MemoryPlan& plan, const Decisions& decisions, const PlanRequest& request) const;
  /// The chosen one, in the plan and its ledgers.
  void enter(MemoryPlan& plan, const WeightPlace& place) const;
  /// The least that such a plan takes with the target, in words: one that has everything but the
  /// weights.
  std::string least_memory(const MemoryPlan& plan) const;
  /// Why nothing fits.
  [[noreturn]] void refuse(MemoryPlan plan, const PlanRequest& request) const;

 private:
  struct Left {
    std::uint64_t host = 0, device = 0;
  };
  static std::optional<Left> left_of(const MemoryPlan& plan);
  std::optional<WeightPlace> place_on_host(const Left& left, const PlanRequest& request,
                                           std::uint64_t ring_wish,
                                           std::uint64_t idle_kv_bytes) const;
  /// Units at rest, as many as the request or `left` has room for, and a ring for the others.
  std::optional<WeightPlace> place_units(const SweepLayout& sweep, std::uint64_t left,
                                         std::optional<std::uint64_t> resident,
                                         std::uint64_t ring_wish, bool give_way = false) const;
  /// The same, and experts in a cache.
  std::optional<WeightPlace> place_experts(std::uint64_t left, const PlanRequest& request,
                                           std::uint64_t ring_wish) const;
  std::optional<WeightPlace> place_on_device(const Left& left, const PlanRequest& request,
                                             std::uint64_t ring_wish,
                                             std::uint64_t idle_kv_bytes) const;
  /// Says if units or experts may give way to texts.
  bool may_give_way(const PlanRequest& request, std::uint64_t idle_kv_bytes) const;
  /// Place of what every sweep reads on the device, of experts in a cache there, and of all of them
  /// in host memory, or of as many as it holds.
  std::optional<WeightPlace> place_experts_on_device(const Left& left, const PlanRequest& request,
                                                     std::uint64_t idle_kv_bytes) const;
  /// Lets experts have that memory until texts want it, where they may give way.
  void fill_with_experts(WeightPlace& place, std::uint64_t idle_kv_bytes, bool on_device) const;
  std::uint64_t slot_of(bool on_device) const { return on_device ? device_slot_ : slot_; }
  /// Slabs of two units while weights go to a device, and rows of the embedding later.
  std::uint64_t staging_bytes(const SweepLayout& sweep) const;
  BudgetError too_small(const char* what, std::uint64_t budget, std::uint64_t least,
                        const std::vector<LedgerEntry>& ledger) const;
  bool fill_host(std::uint64_t left, const PlanRequest& request, WeightPlace& place) const;

  /// Keeps `bytes` bytes in memory, where they are computed with.
  Residency rest(const SweepLayout& sweep, std::uint64_t bytes, Tier tier) const;
  const SweepLayout& units_of(bool experts_apart) const { return experts_apart ? *apart_ : sweep_; }
  std::uint64_t least_units(const SweepLayout& sweep) const;
  std::uint64_t resident_of(const WeightPlace& place, bool on_device) const;
  void enter_experts(MemoryPlan& plan, const WeightPlace& place) const;
  void let_share(MemoryPlan& plan, const Residency& full) const;
  void let_experts_share(MemoryPlan& plan, const WeightPlace& place) const;

  const SweepLayout& sweep_;
  const SweepLayout* const apart_;
  const bool drafts_;
  const LearnedRoutes routes_;
  // Bytes of everything where it is computed with: on the host, on a device of its own.
  std::uint64_t whole_ = 0, whole_on_device_ = 0;
  // The least that the target can do with: on the host; on a device, and then on its host.
  std::uint64_t least_ = 0, least_on_device_ = 0, least_beside_device_ = 0;
  std::uint64_t travelling_ = 0, uploaded_ = 0;
  // With experts apart: a slot, on the host and on a device, slots beyond those of experts that
  // stay, and all of them in host memory.
  std::uint64_t slot_ = 0, device_slot_ = 0, spare_slots_ = 0, host_experts_ = 0;
  std::uint64_t shared_on_device_ = 0;  // what is not of experts, where it is computed with
  double layer_bytes_ = 0, head_rows_ = 0;
};

}  // namespace canopy
