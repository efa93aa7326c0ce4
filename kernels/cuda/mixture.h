#pragma once
// Kernels of a mixture of experts: which experts a row has, and rows on their way to an expert and
// back. The products between are those of linear.
#include "kernels/cuda/block.h"
#include "kernels/ops.h"

namespace canopy::cuda {

/// Ops::route. A thread for each row, which keeps its best experts, best first, where they go, and
/// then sorts them by index.
struct RouteRows {
  static constexpr int kThreads = 64;
  const float* logits;
  std::int64_t rows;
  std::int32_t experts, active;
  bool sigmoid, normalised;
  float scale;
  const float* bias;  // or null
  std::int32_t* expert;
  float* weight;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    block.step([&](int t) {
      const std::int64_t row = block.index() * kThreads + t;
      if (row < rows) route(logits + row * experts, expert + row * active, weight + row * active);
    });
  }

 private:
  /// The figures of all of a row's logits that a softmax needs.
  struct Softmax {
    float largest, sum;
  };
  CANOPY_KERNEL static bool better(float a, float b) {
    return isnan(a) || isnan(b) ? isnan(a) && !isnan(b) : a > b;
  }
  CANOPY_KERNEL Softmax softmax_of(const float* logit) const {
    Softmax of{-INFINITY, 1.0f};
    if (sigmoid) return of;
    for (std::int32_t e = 0; e < experts; ++e) of.largest = fmaxf(of.largest, logit[e]);
    if (normalised && bias == nullptr) return of;
    of.sum = 0.0f;
    for (std::int32_t e = 0; e < experts; ++e) of.sum += expf(logit[e] - of.largest);
    return of;
  }
  /// Gives the score but for the sum of a softmax.
  CANOPY_KERNEL float part(float logit, Softmax of) const {
    return sigmoid ? 1.0f / (1.0f + expf(-logit)) : expf(logit - of.largest);
  }
  /// Grows with what an expert is chosen by.
  CANOPY_KERNEL float rank(const float* logit, std::int32_t e, Softmax of) const {
    if (bias != nullptr) return part(logit[e], of) / of.sum + bias[e];
    return sigmoid ? part(logit[e], of) : logit[e];
  }
  /// `share` has the ranks of what is kept before it has the weights.
  CANOPY_KERNEL void route(const float* logit, std::int32_t* chosen, float* share) const {
    const Softmax of = softmax_of(logit);
    std::int32_t kept = 0;
    for (std::int32_t one = 0; one < experts; ++one) {
      const float own = rank(logit, one, of);
      std::int32_t place = kept;
      while (place > 0 && better(own, share[place - 1])) --place;
      if (place == active) continue;
      if (kept < active) ++kept;
      for (std::int32_t i = kept - 1; i > place; --i) {
        chosen[i] = chosen[i - 1];
        share[i] = share[i - 1];
      }
      chosen[place] = one;
      share[place] = own;
    }
    for (std::int32_t i = 1; i < active; ++i)  // few, and nearly in order
      for (std::int32_t j = i; j > 0 && chosen[j] < chosen[j - 1]; --j) {
        const std::int32_t other = chosen[j];
        chosen[j] = chosen[j - 1];
        chosen[j - 1] = other;
      }
    float sum = 0.0f;
    for (std::int32_t i = 0; i < active; ++i) {
      share[i] = part(logit[chosen[i]], of);
      sum += share[i];
    }
    if (!normalised) sum = of.sum;
    if (sigmoid) sum += 1e-20f;  // so that sigmoids which are all 0 stay that
    for (std::int32_t i = 0; i < active; ++i) share[i] = share[i] / sum * scale;
  }
};

/// Rows of x that an expert computes, side by side. One block per row.
struct GatherRows {
  const float* x;
  const ExpertRow* rows;
  std::int64_t columns;
  float* own;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const float* const from = x + rows[block.index()].row * columns;
    float* const to = own + block.index() * columns;
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads()) to[k] = from[k];
    });
  }
};

/// Adds what the expert gave, by weights, to the rows' sums. One block per row.
struct AddWeighted {
  const float* own;
  const ExpertRow* rows;
  const float* weight;
  std::int64_t columns;
  float* sum;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const ExpertRow of = rows[block.index()];
    const float share = of.weight < 0 ? 1.0f : weight[of.weight];
    const float* const from = own + block.index() * columns;
    float* const to = sum + of.row * columns;
    block.step([&](int t) {
      for (std::int64_t k = t; k < columns; k += block.threads())
        to[k] = fmaf(share, from[k], to[k]);
    });
  }
};

}  // namespace canopy::cuda
