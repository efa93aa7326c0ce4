#pragma once
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "planner/tree_shape.h"
#include "src/engine/engine.h"
#include "src/measure/steps/measured_samples.h"

namespace canopy {

/// The most rows of a sweep, or of a level of the draft, that are timed.
inline constexpr int kMostTimedRows = 512;
/// The same where all weights rest.
inline constexpr int kMostRowsAtRest = 16;
/// A root, `width` children, a child of each: a level of one row and one of `width`.
TreeShape two_levels(int width);

struct StepTiming {
  std::vector<int> layers;  // of the target, by kind; the engine has fewer, each kind at least once
  Clock::time_point until;  // the end of the time for what can be done without
  std::function<void(std::string_view what)> before = {};  // each step, which is about to be timed
};
/// Times what steps cost, on an engine of a few of a target's layers: first what a profile cannot
/// do without, then more rows and more rounds while there is time. What `samples` has is not timed
/// again; it gains the rest. The engine keeps no drafter. Returns where the time went, in words.
/// Throws Error; Stopped on request: `samples` has what was timed before.
std::string time_steps(Engine& engine, const StepTiming& timing, MeasuredSamples& samples,
                       const std::stop_token& stop);

/// Times sweeps of an engine of a few of a target's layers, all of whose weights rest, while there
/// is time. Throws as time_steps does.
void time_at_rest(Engine& engine, const StepTiming& timing, MeasuredSamples& samples,
                  const std::stop_token& stop);

}  // namespace canopy
