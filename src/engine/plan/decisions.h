#pragma once
// Private to make_plan().
#include <cstdint>
#include <optional>

#include "src/engine/plan/plan.h"

namespace canopy {

/// A draft, as every plan that has one sees it.
struct DraftModel {
  const ModelConfig& config;
  std::uint64_t weight_bytes;  // 0: the target's own, which are counted there

  static std::optional<DraftModel> of(const std::optional<SweepLayout>& sweep, bool on_device);
};
struct DraftModels {
  std::optional<DraftModel> outer, inner;  // inner: of a hierarchy
};

/// The trees that a plan is laid out for.
struct PlannedTrees {
  SpeculationMethod method;
  TreeShape shape;
  TreeRoom room;  // of a sweep
  int places;     // for texts that may share one
  bool adaptive;  // the room is for other shapes, too
};

/// The numbers of a method's growth, those that its name fixes among them.
Growth growth_for(const PlanRequest& request, SpeculationMethod method);

/// Limits, KV caches and drafts: all but what the planner adds. Throws BudgetError if the memory
/// that is given for keys and values is too small for one text.
Decisions decide(const PlanRequest& request, const PlannedTrees& trees, const ModelConfig& target,
                 const DraftModels& drafts);

}  // namespace canopy
