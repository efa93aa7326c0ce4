#pragma once
#include <memory>
#include <vector>

#include "planner/acceptance_tracker.h"
#include "planner/planner.h"
#include "src/engine/plan/plan.h"
#include "src/speculation/drafter.h"

namespace canopy {

/// The texts that share the next sweep.
struct SharingTexts {
  std::vector<AcceptanceTracker*> trackers;  // what was accepted of each
  double context = 0;                        // mean tokens
  int missed = 0;                       // tokens that the draft has not read, as decoding was plain
  int left = 0;                         // tokens that they may still gain, at most
  const WeightPlan* weights = nullptr;  // where these are now; null: as when it was made
  RouteHabits routes{};                 // of a mixture, as sweeps have shown them
};

/// Chooses the shape of each sweep's trees: the one that is predicted to be the fastest for as many
/// texts as are there, by what was accepted of them; none at all where plain decoding is. Plain
/// decoding shows nothing of the draft, so a short chain is tried from time to time: if it pays,
/// trees come back. A shape never changes within a step, nor by the tokens of its own step:
/// exactness is untouched. No clock is read. One thread.
class Replanner {
 public:
  /// The plan's tree was chosen, not given.
  Replanner(const Plan& plan, bool sampled);

  /// Makes what follows a text that begins.
  AcceptanceTracker tracker() const { return AcceptanceTracker(planned_); }
  /// The shape of the trees of the next sweep; the root alone: plain decoding.
  const TreeShape& shape() const { return shape_; }

  /// The shape of a sweep that also reads `rows` rows of the prompts of `texts` texts that begin.
  TreeShape shape_beside_prompts(int texts, int rows) const;

  /// Before every sweep, of at least one text; true if shape() has changed. Chooses anew where the
  /// number of texts is another than in the last sweep, as in the first; else every few seconds, as
  /// predicted, 16 sweeps at most.
  bool before_sweep(const SharingTexts& texts, const Drafter& drafter);

 private:
  /// The best shape by what the texts have shown; `kept`, where there is one, if no other is
  /// clearly better.
  TreeShape best_shape(const SharingTexts& texts, const Drafter& drafter,
                       const TreeShape* kept) const;
  Seconds catch_up(const SharingTexts& texts) const;
  /// The shape that the plan has for `texts` texts, where it has one.
  const TreeShape* planned_for(int texts) const;
  bool change_to(TreeShape shape);

  std::shared_ptr<const CostModel> cost_;
  Acceptance planned_;
  Choice prediction_;
  WeightPlan weights_;
  bool sampled_;
  bool valued_;  // trees are, of those texts for which the target's own sample decides
  ValuedSizes sizes_;
  int interval_;  // sweeps between two looks
  TreeShape shape_;
  int texts_ = 0;        // of the last sweep
  int until_look_ = 0;   // sweeps
  bool trying_ = false;  // a chain, from plain decoding
  int plain_sweeps_;     // from a decision for plain decoding to the next trial
};

}  // namespace canopy
