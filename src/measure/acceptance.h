#pragma once
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "planner/acceptance_sample.h"
#include "src/engine/engine.h"
#include "src/measure/calibration_prompts.h"

namespace canopy {

/// A measurement of acceptance. Prompts whose cuts are of one text count as one in its errors.
struct AcceptanceRequest {
  std::span<const PromptCut> prompts;
  Sampling sampling;
  std::uint64_t seed = 0;
  int new_tokens = 0;  // of each continuation, unless the model ends it before
};
struct AcceptanceProgress {
  int runs_done = 0;
  std::int64_t positions = 0;  // of all runs
  int sweeps = 0;              // done
  int layer = 0, layers = 0;   // of the one on its way
  Seconds since_start{};
};

/// Continues each prompt by the target's own text, and reports at each position what the rule makes
/// of the draft's best or drawn children: one for each prompt, in their order. As many share each
/// sweep as the plan has caches for, a row of the target each. The plan must have been made with
/// `children`. Throws Stopped on request, Error if a prompt does not fit.
std::vector<AcceptanceRun> measure_acceptance(
    Engine& engine, const AcceptanceRequest& request,
    const std::function<void(const AcceptanceProgress&)>& on_progress = {},
    std::stop_token stop = {});

}  // namespace canopy
