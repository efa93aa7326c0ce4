#pragma once
// Private to make_plan().
#include <cstdint>
#include <optional>
#include <string>

#include "src/engine/plan/ledgers.h"
#include "src/engine/plan/plan.h"
#include "src/engine/plan/target_memory.h"

namespace canopy {

/// One plan in the making: what was asked, what is left to choose, and what it would take.
class Planning {
 public:
  Planning(const PlanRequest& request, const ModelSweeps& models, std::uint64_t process_bytes,
           const ScratchBytes& scratch_bytes);
  Planning(const Planning&) = delete;  // the planner's input calls this one
  Planning& operator=(const Planning&) = delete;
  Plan make();
  /// Does what plan_memory() says.
  MemoryPlan memory_of(const Decisions& decisions) const;
  /// The least that a plan with its draft takes, in words.
  std::string least_memory() const;

 private:
  PlannerInput planner_input();
  Decisions decide_for(const TreeShape& shape, const TreeRoom& room, int places) const;
  /// The ledgers of everything but the target's weights.
  MemoryPlan beside(const Decisions& decisions) const;
  std::optional<WeightPlace> place(const TreeShape& shape, const TreeRoom& room, int places,
                                   std::uint64_t ring) const;
  bool fits(const TreeShape& shape, const TreeRoom& room, int places) const {
    return place(shape, room, places, 0).has_value();
  }
  SpeculationMethod method_for(const TreeShape& shape, const TreeRoom& room) const;
  /// Returns the room of trees of this shape, one for each place.
  TreeRoom room_of(const TreeShape& shape, int places) const;
  bool is_free() const { return !given_ && request_.tree_size == 0; }  // the tree
  int texts_of(int places) const {
    return request_.texts == 0 ? places : std::min(request_.texts, places);
  }
  void take_given();
  void choose_trees();
  void note_idle_draft(Plan& plan) const;

  PlanRequest request_;
  const SweepLayout& target_;
  const TargetMemory weights_;
  const std::uint64_t process_bytes_;
  const ScratchBytes& scratch_bytes_;
  const SpeculationMethod asked_;
  const DraftModels drafts_;  // once: hundreds of shapes are tried
  std::optional<TreeShape> given_;
  PlannerInput input_;
  std::optional<Choice> choice_;
  TreeShape shape_;
  TreeRoom room_ = TreeRoom::of(shape_);
  int places_ = 1;
};

}  // namespace canopy
