#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "planner/cost_model.h"
#include "planner/tree_shape.h"

namespace canopy {

/// One way to decode, and what it is predicted to give.
struct Candidate {
  TreeShape shape;               // the root alone: plain decoding
  int sequences = 1;             // that share a sweep, a tree each
  double tokens = 1;             // expected per step and sequence
  StepCost cost;                 // of the step
  std::uint64_t ring_wish = 0;   // what the layout was asked for
  std::uint64_t ring_bytes = 0;  // of the weights' layout
  std::uint64_t resident_bytes = 0, sweep_bytes = 0;
  Seconds per_token() const { return cost.step / (tokens * sequences); }
};

/// What there is to choose from.
struct PlannerInput {
  const CostModel* cost = nullptr;
  Acceptance acceptance;
  bool sampled = true;  // StepQuery::sampled
  double context = 0;   // tokens of text behind a tree in the middle of the request
  int sequences = 1;    // most that may share a sweep
  int least_sequences = 1;
  int max_nodes = 1024;                            // of all trees of a step together
  int max_levels = 32;                             // of a tree
  int nodes = 0;                                   // of each tree, where it is not to be chosen
  bool plain = true, chains = true, trees = true;  // which kinds take part
  /// How the weights would lie beside all that these trees need, with a ring of at least this many
  /// bytes where there is a choice; nothing if that does not fit the budget.
  std::function<std::optional<WeightPlan>(const TreeShape&, int sequences, std::uint64_t ring)>
      lay_out;
};

struct Choice {
  Candidate best;
  /// The best of each kind: plain decoding, the best chain, the best tree of each size tried; by
  /// rising size.
  std::vector<Candidate> table;
};

/// What is predicted of so many trees of this shape, in the best layout; nothing if none fits.
std::optional<Candidate> predict(const PlannerInput& input, const TreeShape& shape, int sequences);

/// How much of a tree pays for itself in a sweep that also reads `prompt_rows` rows of prompts: the
/// part that minimises the sweep's seconds less what its tokens would take at the pace of the
/// sweeps to come, whose trees `step` tells of. At least the root. docs/math.md, "The first token".
TreeShape tree_beside_prompt(const CostModel& cost, const WeightPlan& weights, StepQuery step,
                             int prompt_rows, const Acceptance& acceptance);

/// The candidate of fewest predicted seconds per token, over tree sizes, depths, numbers of
/// sequences and layouts of the weights. Where two are within a thousandth, the smaller tree.
/// Plain decoding and chains take part, so speculation that does not pay turns itself off.
/// Deterministic, pure. Nothing if no candidate fits.
/// Source: arXiv:2402.12374, Sec. 3.3, with our cost of a step.
std::optional<Choice> choose(const PlannerInput& input);

}  // namespace canopy
