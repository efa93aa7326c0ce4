#pragma once
#include <functional>
#include <span>
#include <stop_token>

#include "planner/acceptance_sample.h"
#include "src/engine/engine.h"
#include "src/measure/tree_figures.h"

namespace canopy {

/// Tokens and steps of one text.
struct StepTally {
  double tokens = 0, steps = 0;
};
/// Without loops: of the steps that do not begin inside one.
StepTally tally_steps(const TextReport& text, Loops loops);
/// The ratio of their sums; its error from how the texts differ.
Estimate tokens_per_step(std::span<const StepTally> tallies);

/// The gain of an engine's method, and its cost, after the first step of each text.
struct DecodeMeasurement {
  Estimate tokens_per_step, outside_loops;
  double seconds_per_token = 0, bytes_per_token = 0;  // bytes from disk
  Seconds step{}, compute{}, drafting{};              // of one step, on the mean
  Joules joules = {};                                 // of all
  double tokens = 0;                                  // that they were used for
  /// Rows of the target and of a draft model per token, and of the tokens those that were drafted.
  double rows_per_token = 0, draft_rows_per_token = 0, drafted_share = 0;
  double accepted_of_checked = 0;                     // of the drafted nodes that were checked
  TreeFigures trees;                                  // of all that were checked
  double drafted_per_text = 0, checked_per_text = 0;  // nodes that the draft ran; without roots
  double copied_steps = 0;  // share of steps that gained by nodes which stand for others
  /// The texts' perplexity under the target's own distribution, nothing warped; 0 without log
  /// probabilities.
  double perplexity = 0;
  std::vector<std::vector<TokenId>> texts;  // one per request
  std::vector<StepTally> tallies;           // of these
};
/// Continues all requests, as many at once as the plan has caches for. `on_step` is given the first
/// of those that share the sweep. Throws Error, Stopped.
DecodeMeasurement measure_decode(
    Engine& engine, std::span<const Request> requests,
    const std::function<void(std::size_t first, const StepProgress&)>& on_step = {},
    const std::stop_token& stop = {});

}  // namespace canopy
