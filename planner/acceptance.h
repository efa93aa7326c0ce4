#pragma once
#include <array>

#include "planner/tree_shape.h"

namespace canopy {

/// Acceptance that trees are planned with until that of this draft and target has been measured:
/// the values of a self-draft (the target's own weights rounded to Q4_0). Measured for this project
/// on SmolLM2-135M-Instruct: f32 arithmetic, teacher-forced on the target's own continuations of
/// web text and chat prompts at the same temperature, 3,072 positions at temperature 0 (did the
/// target's best token have this rank in the draft?) and 3,038 at 0.6 (Sequoia's rule). The first
/// entry has a standard error of 0.020 and 0.012 over continuations. Raw: best_tree makes the tail
/// monotone. A wrong vector costs speed, never exactness.
inline constexpr std::array kSelfDraftGreedy = {
    0.82194,  0.102865, 0.03418,  0.014323, 0.008138, 0.004557, 0.002604, 0.000651,
    0.002604, 0.001628, 0.000651, 0.000651, 0.000651, 0.0,      0.000651, 0.000326,
    0.000326, 0.0,      0.000651, 0.0,      0.000326, 0.000326, 0.0,      0.0,
    0.000326, 0.0,      0.0,      0.000326, 0.000326, 0.000326, 0.0,      0.0};
inline constexpr std::array kSelfDraftSampled = {
    0.756264, 0.100252, 0.043333, 0.023952, 0.015463, 0.010574, 0.007698, 0.005804,
    0.00452,  0.003629, 0.002961, 0.00244,  0.002011, 0.001731, 0.001479, 0.001277,
    0.001111, 0.000972, 0.000861, 0.000768, 0.000694, 0.000633, 0.000577, 0.000528,
    0.000488, 0.000449, 0.000414, 0.000384, 0.000357, 0.000334, 0.000311, 0.000288};

/// The greedy vector at temperature 0, the sampled one above.
inline Acceptance default_acceptance(double temperature) {
  const auto& accept = temperature == 0 ? kSelfDraftGreedy : kSelfDraftSampled;
  return {{accept.begin(), accept.end()}};
}

}  // namespace canopy
