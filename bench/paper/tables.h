#pragma once
#include <cmath>
#include <functional>
#include <iterator>

#include "planner/tree_shape.h"

/// Numbers quoted from tables of the Sequoia paper, arXiv:2402.12374. Sizes count the root, depths
/// are levels with the root's; a speedup is over decoding without speculation on the same system.
namespace canopy::paper {

/// A row of Table 4 (A100) or Table 7 (L40): all weights on the GPU.
struct OnChip {
  const char *gpu, *target, *draft;
  double temperature;
  const char* text;
  int nodes, levels;
  double speedup, tokens;
  /// SpecInfer next to it: 5 and 8 independent sequences of 8 tokens.
  double speedup_5x8, tokens_5x8, speedup_8x8, tokens_8x8;
};

inline constexpr OnChip kOnChip[] = {
    {"A100", "Llama2-7B", "JF68M", 0, "C4", 128, 10, 4.04, 5.08, 3.45, 3.96, 3.70, 4.11},
    {"A100", "Llama2-7B", "JF68M", 0.6, "C4", 128, 7, 3.18, 3.92, 2.47, 2.97, 2.45, 3.05},
    {"A100", "Llama2-7B", "JF68M", 0, "OpenWebText", 128, 7, 3.22, 3.86, 2.79, 3.15, 2.96, 3.24},
    {"A100", "Llama2-7B", "JF68M", 0.6, "OpenWebText", 128, 6, 2.71, 3.33, 2.10, 2.54, 2.08, 2.55},
    {"A100", "Llama2-7B", "JF68M", 0, "CNN", 128, 7, 3.41, 4.05, 2.95, 3.27, 3.10, 3.37},
    {"A100", "Llama2-7B", "JF68M", 0.6, "CNN", 128, 6, 2.83, 3.45, 2.11, 2.58, 2.22, 2.69},
    {"A100", "Llama2-13B", "JF68M", 0, "C4", 64, 9, 3.73, 4.20, 3.30, 3.64, 3.10, 3.75},
    {"A100", "Llama2-13B", "JF68M", 0.6, "C4", 64, 7, 3.19, 3.57, 2.48, 2.87, 2.42, 3.00},
    {"A100", "Llama2-13B", "JF68M", 0, "OpenWebText", 64, 7, 3.18, 3.49, 2.77, 3.05, 2.59, 3.14},
    {"A100", "Llama2-13B", "JF68M", 0.6, "OpenWebText", 64, 6, 2.77, 3.06, 2.17, 2.49, 2.01, 2.52},
    {"A100", "Llama2-13B", "JF68M", 0, "CNN", 64, 7, 3.33, 3.68, 2.95, 3.22, 2.75, 3.32},
    {"A100", "Llama2-13B", "JF68M", 0.6, "CNN", 64, 6, 2.88, 3.17, 2.17, 2.54, 2.09, 2.60},
    {"A100", "Llama2-13B", "JF160M", 0, "C4", 64, 7, 3.10, 4.69, 2.74, 4.33, 2.58, 4.42},
    {"A100", "Llama2-13B", "JF160M", 0.6, "C4", 64, 6, 2.83, 4.06, 2.07, 3.46, 2.02, 3.53},
    {"A100", "Llama2-13B", "JF160M", 0, "OpenWebText", 64, 6, 2.72, 3.90, 2.26, 3.58, 2.15, 3.66},
    {"A100", "Llama2-13B", "JF160M", 0.6, "OpenWebText", 64, 5, 2.49, 3.38, 1.80, 2.96, 1.77, 3.07},
    {"A100", "Llama2-13B", "JF160M", 0, "CNN", 64, 6, 2.84, 4.05, 2.36, 3.73, 2.25, 3.83},
    {"A100", "Llama2-13B", "JF160M", 0.6, "CNN", 64, 5, 2.55, 3.47, 1.79, 2.97, 1.74, 3.03},
    {"A100", "Vicuna-33B", "SL1.3B", 0, "C4", 64, 6, 2.27, 4.28, 1.83, 3.86, 1.73, 3.96},
    {"A100", "Vicuna-33B", "SL1.3B", 0.6, "C4", 64, 6, 2.19, 4.16, 1.64, 3.53, 1.52, 3.56},
    {"A100", "Vicuna-33B", "SL1.3B", 0, "OpenWebText", 64, 5, 2.21, 3.93, 1.75, 3.70, 1.65, 3.79},
    {"A100", "Vicuna-33B", "SL1.3B", 0.6, "OpenWebText", 64, 5, 2.13, 3.82, 1.57, 3.36, 1.47, 3.43},
    {"A100", "Vicuna-33B", "SL1.3B", 0, "CNN", 64, 5, 2.21, 3.93, 1.75, 3.71, 1.65, 3.79},
    {"A100", "Vicuna-33B", "SL1.3B", 0.6, "CNN", 64, 5, 2.16, 3.86, 1.58, 3.40, 1.46, 3.43},
    {"L40", "Llama2-7B", "JF68M", 0, "C4", 64, 10, 3.95, 4.68, 3.50, 3.98, 3.30, 4.10},
    {"L40", "Llama2-7B", "JF68M", 0.6, "C4", 64, 7, 3.10, 3.63, 2.28, 2.89, 2.31, 3.08},
    {"L40", "Llama2-7B", "JF68M", 0, "OpenWebText", 64, 7, 3.12, 3.58, 2.79, 3.16, 2.62, 3.24},
    {"L40", "Llama2-7B", "JF68M", 0.6, "OpenWebText", 64, 6, 2.68, 3.12, 2.08, 2.54, 1.99, 2.64},
    {"L40", "Llama2-7B", "JF68M", 0, "CNN", 64, 7, 3.30, 3.79, 2.89, 3.28, 2.73, 3.40},
    {"L40", "Llama2-7B", "JF68M", 0.6, "CNN", 64, 6, 2.81, 3.27, 2.09, 2.59, 1.99, 2.65},
    {"L40", "Llama2-13B", "JF68M", 0, "C4", 64, 10, 3.15, 4.25, 2.76, 3.61, 2.68, 3.72},
    {"L40", "Llama2-13B", "JF68M", 0.6, "C4", 64, 8, 2.62, 3.57, 2.06, 2.81, 2.03, 2.93},
    {"L40", "Llama2-13B", "JF68M", 0, "OpenWebText", 64, 8, 2.64, 3.52, 2.34, 3.05, 2.26, 3.14},
    {"L40", "Llama2-13B", "JF68M", 0.6, "OpenWebText", 64, 6, 2.28, 3.07, 1.79, 2.44, 1.78, 2.57},
    {"L40", "Llama2-13B", "JF68M", 0, "CNN", 64, 7, 2.78, 3.68, 2.47, 3.21, 2.40, 3.33},
    {"L40", "Llama2-13B", "JF68M", 0.6, "CNN", 64, 7, 2.37, 3.22, 1.85, 2.51, 1.80, 2.60},
    {"L40", "Llama2-13B", "JF160M", 0, "C4", 64, 9, 3.07, 5.04, 2.71, 4.34, 2.62, 4.43},
    {"L40", "Llama2-13B", "JF160M", 0.6, "C4", 64, 7, 2.65, 4.18, 2.07, 3.43, 2.05, 3.56},
    {"L40", "Llama2-13B", "JF160M", 0, "OpenWebText", 64, 7, 2.60, 4.05, 2.24, 3.57, 2.18, 3.67},
    {"L40", "Llama2-13B", "JF160M", 0.6, "OpenWebText", 64, 6, 2.30, 3.54, 1.82, 2.99, 1.73, 2.99},
    {"L40", "Llama2-13B", "JF160M", 0, "CNN", 64, 7, 2.71, 4.21, 2.34, 3.72, 2.27, 3.83},
    {"L40", "Llama2-13B", "JF160M", 0.6, "CNN", 64, 6, 2.36, 3.63, 1.82, 2.99, 1.72, 2.99},
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

/// Acceptance that the rules make of the same children, drawn for the same positions: measured for
/// this project on the pair of planner/acceptance.h, which has Sequoia's rule at temperature 0.6,
/// in the same way (3,038 positions at 0.6, 2,905 at 1). SpecInfer draws with replacement.
inline constexpr double kSpecInferAt06[] = {
    0.756264, 0.065017, 0.030397, 0.018847, 0.013376, 0.010113, 0.008,    0.006513,
    0.005467, 0.004684, 0.004047, 0.003552, 0.003145, 0.002805, 0.002535, 0.00229,
    0.002077, 0.0019,   0.00174,  0.001609, 0.001496, 0.001387, 0.001292, 0.001209,
    0.001138, 0.001074, 0.001017, 0.00096,  0.000906, 0.000861, 0.000817, 0.000778};
inline constexpr double kSequoiaAt1[] = {
    0.712608, 0.096995, 0.046632, 0.027573, 0.018294, 0.013158, 0.00997,  0.007863,
    0.006337, 0.005238, 0.004389, 0.003738, 0.003236, 0.00281,  0.002463, 0.002179,
    0.001946, 0.001754, 0.001586, 0.001439, 0.001312, 0.0012,   0.001102, 0.001016,
    0.000937, 0.000871, 0.00081,  0.000757, 0.00071,  0.000666, 0.000624, 0.000588};
inline constexpr double kSpecInferAt1[] = {
    0.712608, 0.086632, 0.04187,  0.025587, 0.017474, 0.012886, 0.009898, 0.007904,
    0.00648,  0.005419, 0.004595, 0.003962, 0.003449, 0.003048, 0.002721, 0.002427,
    0.002186, 0.001992, 0.001821, 0.001671, 0.001532, 0.001412, 0.001307, 0.001217,
    0.001134, 0.001056, 0.000986, 0.000923, 0.00087,  0.000823, 0.00078,  0.00074};

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
