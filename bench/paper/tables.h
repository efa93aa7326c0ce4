#pragma once
#include <cmath>
#include <functional>
#include <iterator>

#include "planner/tree_shape.h"

/// Numbers quoted from tables of the Sequoia paper, arXiv:2402.12374. Sizes count the root, depths
/// are levels with the root's; a speedup is over decoding without speculation on the same system.
namespace canopy::paper {

/// A row of Table 4 (A100) or Table 7 (L40): Sequoia with all weights on the GPU.
struct OnChip {
  const char *gpu, *target, *draft;
  double temperature;
  const char* text;
  int nodes, levels;
  double speedup, tokens;
};

inline constexpr OnChip kOnChip[] = {
    {"A100", "Llama2-7B", "JF68M", 0, "C4", 128, 10, 4.04, 5.08},
    {"A100", "Llama2-7B", "JF68M", 0.6, "C4", 128, 7, 3.18, 3.92},
    {"A100", "Llama2-7B", "JF68M", 0, "OpenWebText", 128, 7, 3.22, 3.86},
    {"A100", "Llama2-7B", "JF68M", 0.6, "OpenWebText", 128, 6, 2.71, 3.33},
    {"A100", "Llama2-7B", "JF68M", 0, "CNN", 128, 7, 3.41, 4.05},
    {"A100", "Llama2-7B", "JF68M", 0.6, "CNN", 128, 6, 2.83, 3.45},
    {"A100", "Llama2-13B", "JF68M", 0, "C4", 64, 9, 3.73, 4.20},
    {"A100", "Llama2-13B", "JF68M", 0.6, "C4", 64, 7, 3.19, 3.57},
    {"A100", "Llama2-13B", "JF68M", 0, "OpenWebText", 64, 7, 3.18, 3.49},
    {"A100", "Llama2-13B", "JF68M", 0.6, "OpenWebText", 64, 6, 2.77, 3.06},
    {"A100", "Llama2-13B", "JF68M", 0, "CNN", 64, 7, 3.33, 3.68},
    {"A100", "Llama2-13B", "JF68M", 0.6, "CNN", 64, 6, 2.88, 3.17},
    {"A100", "Llama2-13B", "JF160M", 0, "C4", 64, 7, 3.10, 4.69},
    {"A100", "Llama2-13B", "JF160M", 0.6, "C4", 64, 6, 2.83, 4.06},
    {"A100", "Llama2-13B", "JF160M", 0, "OpenWebText", 64, 6, 2.72, 3.90},
    {"A100", "Llama2-13B", "JF160M", 0.6, "OpenWebText", 64, 5, 2.49, 3.38},
    {"A100", "Llama2-13B", "JF160M", 0, "CNN", 64, 6, 2.84, 4.05},
    {"A100", "Llama2-13B", "JF160M", 0.6, "CNN", 64, 5, 2.55, 3.47},
    {"A100", "Vicuna-33B", "SL1.3B", 0, "C4", 64, 6, 2.27, 4.28},
    {"A100", "Vicuna-33B", "SL1.3B", 0.6, "C4", 64, 6, 2.19, 4.16},
    {"A100", "Vicuna-33B", "SL1.3B", 0, "OpenWebText", 64, 5, 2.21, 3.93},
    {"A100", "Vicuna-33B", "SL1.3B", 0.6, "OpenWebText", 64, 5, 2.13, 3.82},
    {"A100", "Vicuna-33B", "SL1.3B", 0, "CNN", 64, 5, 2.21, 3.93},
    {"A100", "Vicuna-33B", "SL1.3B", 0.6, "CNN", 64, 5, 2.16, 3.86},
    {"L40", "Llama2-7B", "JF68M", 0, "C4", 64, 10, 3.95, 4.68},
    {"L40", "Llama2-7B", "JF68M", 0.6, "C4", 64, 7, 3.10, 3.63},
    {"L40", "Llama2-7B", "JF68M", 0, "OpenWebText", 64, 7, 3.12, 3.58},
    {"L40", "Llama2-7B", "JF68M", 0.6, "OpenWebText", 64, 6, 2.68, 3.12},
    {"L40", "Llama2-7B", "JF68M", 0, "CNN", 64, 7, 3.30, 3.79},
    {"L40", "Llama2-7B", "JF68M", 0.6, "CNN", 64, 6, 2.81, 3.27},
    {"L40", "Llama2-13B", "JF68M", 0, "C4", 64, 10, 3.15, 4.25},
    {"L40", "Llama2-13B", "JF68M", 0.6, "C4", 64, 8, 2.62, 3.57},
    {"L40", "Llama2-13B", "JF68M", 0, "OpenWebText", 64, 8, 2.64, 3.52},
    {"L40", "Llama2-13B", "JF68M", 0.6, "OpenWebText", 64, 6, 2.28, 3.07},
    {"L40", "Llama2-13B", "JF68M", 0, "CNN", 64, 7, 2.78, 3.68},
    {"L40", "Llama2-13B", "JF68M", 0.6, "CNN", 64, 7, 2.37, 3.22},
    {"L40", "Llama2-13B", "JF160M", 0, "C4", 64, 9, 3.07, 5.04},
    {"L40", "Llama2-13B", "JF160M", 0.6, "C4", 64, 7, 2.65, 4.18},
    {"L40", "Llama2-13B", "JF160M", 0, "OpenWebText", 64, 7, 2.60, 4.05},
    {"L40", "Llama2-13B", "JF160M", 0.6, "OpenWebText", 64, 6, 2.30, 3.54},
    {"L40", "Llama2-13B", "JF160M", 0, "CNN", 64, 7, 2.71, 4.21},
    {"L40", "Llama2-13B", "JF160M", 0.6, "CNN", 64, 6, 2.36, 3.63},
};

/// A column of Table 3: the optimizer's own size, or a fixed one. Temperature and text are not
/// stated there.
struct Size {
  int nodes;  // 0: chosen by the optimizer; not stated which
  double speedup, tokens;
};
struct HardwareAware {
  const char *gpu, *target, *draft;
  Size chosen, fixed[2];
};
inline constexpr HardwareAware kHardwareAware[] = {
    {"L40", "Llama2-13B", "JF68M", {0, 3.26, 4.40}, {{128, 3.16, 4.77}, {256, 2.51, 5.09}}},
    {"A100", "Vicuna-33B", "SL1.3B", {0, 2.37, 4.41}, {{128, 2.09, 4.99}, {256, 1.72, 5.30}}},
};

/// A row of Table 5: Llama2-70B streamed over PCIe 4 to an L40, drafted by Llama2-7B.
struct Offloading {
  double temperature;
  const char* text;
  int nodes, levels;
  double speedup, tokens, seconds_per_token;
  double specinfer_tokens;  // 16 sequences of 48
  double p1, b;             // of `fitted`
};
inline constexpr double kPlainSeconds = 5.6;  // per token without speculation, Sec. 4.1
inline constexpr Offloading kOffloading[] = {
    {0, "C4", 768, 22, 9.96, 12.18, 0.56, 8.66, 0.8708892904, 0.9331798521},
    {0.6, "C4", 768, 23, 8.26, 10.12, 0.69, 6.93, 0.8274282971, 0.9331798521},
    {0, "OpenWebText", 768, 18, 8.14, 9.83, 0.69, 7.36, 0.8471199646, 0.6207671838},
    {0.6, "OpenWebText", 768, 19, 7.39, 9.05, 0.76, 6.18, 0.8241425123, 0.6207671838},
    {0, "CNN", 768, 17, 8.78, 10.46, 0.64, 7.87, 0.8571183674, 0.7511534852},
    {0.6, "CNN", 768, 18, 8.03, 9.58, 0.70, 6.24, 0.8302419663, 0.7511534852},
};

/// The vector in which r(k) is the chance that k children are all refused: p_k = r(k-1) - r(k).
inline Acceptance from_rejection(int ranks, const std::function<double(int)>& r) {
  Acceptance acceptance;
  double before = 1;
  for (int k = 1; k <= ranks; ++k) {
    acceptance.accept.push_back(before - r(k));
    before = r(k);
  }
  return acceptance;
}

/// r(k) = (1 - p1) k^-b: FITTED by this project to the row's own token counts, as the paper
/// publishes no vector. At temperature 0, p1 and b to `tokens` and `specinfer_tokens`; at 0.6, p1
/// to `tokens`, with the b of temperature 0. So these counts prove nothing.
inline Acceptance fitted(const Offloading& row) {
  return from_rejection(32, [&](int k) { return (1 - row.p1) * std::pow(k, -row.b); });
}

/// The chances p_1 ... p_32 that github.com/Infini-AI-Lab/Sequoia (commit 0ff3ff7) publishes, of
/// some 667 steps. Model pair, text and temperature are not stated there; the tail is noise.
inline constexpr double kPublishedAcceptance[] = {
    0.63418293, 0.10794602, 0.05697151, 0.02248876, 0.01949026, 0.0149925,  0.00449775, 0.0029985,
    0.011994,   0.00449775, 0.00749625, 0.00449775, 0.005997,   0.0029985,  0.00149925, 0.0029985,
    0.00149925, 0.0029985,  0.0,        0.0029985,  0.0029985,  0.0029985,  0.0,        0.00149925,
    0.0,        0.00149925, 0.0,        0.0,        0.0,        0.00149925, 0.00149925, 0.00149925};
inline Acceptance published() {
  return {{std::begin(kPublishedAcceptance), std::end(kPublishedAcceptance)}};
}

}  // namespace canopy::paper
