#pragma once
// Private to make_plan().
#include <cstdint>
#include <optional>
#include <vector>

#include "offload/residency.h"
#include "planner/cost_model.h"
#include "src/engine/plan.h"

namespace canopy {

/// Where the target's weights lie.
struct WeightPlace {
  bool resident = false;                           // all of them
  Residency residency;                             // else
  std::uint64_t at_rest = 0, ring = 0, sweep = 0;  // bytes
};

/// The target's own part of the budget.
class TargetMemory {
 public:
  explicit TargetMemory(const Checkpoint& target);

  /// What `left` bytes hold: the whole target, or weights at rest and a ring of at least
  /// `ring_wish` bytes if that can be; `resident` are the weights that shall rest, if somebody says
  /// so. Nothing if it does not fit.
  std::optional<WeightPlace> place(std::uint64_t left, std::optional<std::uint64_t> resident,
                                   std::uint64_t ring_wish) const;
  /// The same as the planner sees it.
  WeightPlan seen(const WeightPlace& place) const;
  /// The chosen one, in the plan and its ledger.
  void enter(Plan& plan, const WeightPlace& place) const;
  /// Why nothing fits.
  [[noreturn]] void refuse(Plan plan, std::optional<std::uint64_t> resident) const;

 private:
  const Checkpoint& target_;
  const std::vector<UnitLayout> units_;
  std::uint64_t whole_ = 0, least_ = 0, travelling_ = 0;
  double layer_bytes_ = 0, head_rows_ = 0;
};

}  // namespace canopy
