#pragma once
#include <memory>
#include <span>

#include "planner/acceptance_tracker.h"
#include "planner/planner.h"
#include "src/engine/plan.h"
#include "src/speculation/drafter.h"

namespace canopy {

/// Follows what is accepted while a text is written, and gives the trees to come another shape when
/// that is predicted to be worth it; none at all where plain decoding is. Plain decoding teaches
/// nothing about the draft, so a short chain is tried from time to time: if it pays, trees come
/// back. A shape is never changed within a step, nor by the tokens of its own step: exactness is
/// untouched. One thread.
class Replanner {
 public:
  /// The plan's tree was chosen, not given.
  Replanner(const Plan& plan, bool sampled);

  /// What follows a text that begins.
  AcceptanceTracker tracker() const { return AcceptanceTracker(planned_); }
  /// What the next trees look like; the root alone: plain decoding.
  const TreeShape& shape() const { return shape_; }

  /// That of a sweep which also reads so many rows of the prompts of `texts` texts that begin.
  TreeShape shape_beside_prompts(int texts, int rows) const;

  /// After every sweep; true if shape() has changed. Looks every few seconds, as predicted, 16
  /// sweeps at most, and where texts have come or gone: fewer of them can have larger trees. The
  /// texts that share the sweep are given by what was accepted of each;
  /// `context`: mean tokens of them.
  bool after_sweep(std::span<AcceptanceTracker* const> texts, double context,
                   const Drafter& drafter);

 private:
  /// The best shape by what the texts have shown, or `kept` if no other is clearly better.
  TreeShape best_shape(std::span<AcceptanceTracker* const> texts, double context,
                       const Drafter& drafter, const TreeShape& kept) const;
  bool change_to(TreeShape shape);

  std::shared_ptr<const CostModel> cost_;
  Acceptance planned_;
  WeightPlan weights_;
  bool sampled_;
  int interval_;           // sweeps between two looks
  TreeShape first_shape_;  // which there is room for whatever texts are there
  TreeShape shape_;
  int texts_;            // of the last sweep
  int until_look_;       // sweeps
  bool trying_ = false;  // a chain, from plain decoding
  int plain_sweeps_;     // from a decision for plain decoding to the next trial
};

}  // namespace canopy
