#pragma once
// Room planner: predictions of what a step costs and gains, and the choice of method, tree and
// number of texts that takes the fewest seconds a token.
// In: cost curves, acceptance, places of weights. Out: a Choice. Pure functions on plain data.
// Must not know: devices, files of models, threads, clocks.
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "planner/calibrated/valued_trees.h"
#include "planner/cost_model.h"
#include "planner/tree_shape.h"

namespace canopy {

/// One way to decode, and what it is predicted to give.
struct Candidate {
  TreeShape shape;               // the root alone: plain decoding
  int sequences = 1;             // that share a sweep, a tree each
  int places = 1;                // for texts that may share one, in this layout
  bool valued = false;           // the draft's rows make the trees, of as many nodes as the shape
  TreeRoom room;                 // of a sweep, in this layout
  double tokens = 1;             // expected per step and sequence
  double text_tokens = 0;        // of the texts before the trees, each, whose step this is
  StepCost cost;                 // of the step
  Seconds catch_up{};            // PlannerInput::catch_up, where there is a tree
  std::uint64_t ring_wish = 0;   // what the layout was asked for
  std::uint64_t ring_bytes = 0;  // of the weights' layout
  std::uint64_t resident_bytes = 0, sweep_bytes = 0;
  Seconds per_token() const { return cost.step / (tokens * sequences) + catch_up; }
};

/// Choices that the planner has.
struct PlannerInput {
  const CostModel* cost = nullptr;
  Acceptance acceptance;
  bool sampled = true;  // StepQuery::sampled
  double context = 0;   // tokens of text before a tree, in the mean
  double full_context =
      0;           // the same where all places are taken and weights give way; 0: as context
  int places = 1;  // for texts that may share a sweep, at most
  int least_places = 1;
  int texts = 0;  // whose seconds per token are to be the fewest; 0: as many as there are places
  int max_nodes = 1024;                            // of all trees of a step together
  int max_levels = 32;                             // of a tree
  int nodes = 0;                                   // of each tree, where it is not to be chosen
  bool plain = true, chains = true, trees = true;  // which kinds take part
  /// Trees that the draft's rows value take part, too, with this gain over the best tree of their
  /// size. `valued`: in place of shapes, of chains as well.
  std::optional<ValuedGain> gain{};
  bool valued = false;
  /// The room is for trees of other shapes, and for other numbers of texts, too.
  bool roomy = false;
  Seconds catch_up{};  // for each token, while the draft reads what it has missed
  /// The weights' places next to all that so much room for trees takes, with a ring of at least
  /// this many bytes where there is a choice; nothing if that does not fit the budget.
  std::function<std::optional<WeightPlan>(const TreeRoom&, int places, std::uint64_t ring)> lay_out;
};

struct Choice {
  Candidate best;
  Candidate full;  // all places taken, in the layout of the best, with texts of full length
  /// The best of each kind: plain decoding, the best chain, the best tree of each size tried; by
  /// rising size.
  std::vector<Candidate> table;
};

/// Returns the forwards that a valued tree of as many nodes and levels is expected to take, the
/// root's aside, if it brings `tokens`.
ValuedForwards valued_forwards(const TreeShape& shape, double tokens);

/// Predicts trees of this shape for `texts` texts, in the best layout for `places` places; nothing
/// if none fits.
std::optional<Candidate> predict(const PlannerInput& input, const TreeShape& shape, int texts,
                                 int places);

/// The same for a text of full length in each place, for which weights have given way.
std::optional<Candidate> predict_full(const PlannerInput& input, const TreeShape& shape,
                                      int places);

/// Finds the best trees for `texts` texts in a layout that is there: these weights, this room for
/// trees. `input.lay_out` is not asked.
std::optional<Choice> choose_within(PlannerInput input, const WeightPlan& weights,
                                    const TreeRoom& room, int texts);

/// Cuts a tree to what pays for itself in a sweep that also reads `prompt_rows` rows of prompts:
/// the part that minimises the sweep's seconds less what its tokens would take at the pace of the
/// sweeps to come, whose trees `step` describes. At least the root. docs/math.md, "The first
/// token".
TreeShape tree_beside_prompt(const CostModel& cost, const WeightPlan& weights, StepQuery step,
                             int prompt_rows, const Acceptance& acceptance);

/// The candidate of fewest predicted seconds per token for `texts` texts, over tree sizes, depths,
/// numbers of places and layouts of the weights. Where two are within a thousandth, the smaller
/// tree. Where the places are more than the texts, the room grows for a full house as long as that
/// costs those texts no more than a thousandth. Trees that the draft's rows value are taken where
/// they are predicted to be 3% faster than anything else: a shape's levels are launched as one.
/// Plain decoding and chains take part, so speculation
/// that does not pay turns itself off. Deterministic, pure. Nothing if no candidate fits.
/// Source: arXiv:2402.12374, Sec. 3.3, with our cost of a step.
std::optional<Choice> choose(const PlannerInput& input);

}  // namespace canopy
