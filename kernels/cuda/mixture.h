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
  RouterSoftmax softmax;
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
  CANOPY_KERNEL static bool better(const float* logit, std::int32_t a, std::int32_t b) {
    const bool a_is_nan = isnan(logit[a]), b_is_nan = isnan(logit[b]);
    return a_is_nan || b_is_nan ? a_is_nan && !b_is_nan : logit[a] > logit[b];
  }
  CANOPY_KERNEL void route(const float* logit, std::int32_t* chosen, float* share) const {
    std::int32_t kept = 0;
    for (std::int32_t one = 0; one < experts; ++one) {
      std::int32_t place = kept;
      while (place > 0 && better(logit, one, chosen[place - 1])) --place;
      if (place == active) continue;
      if (kept < active) ++kept;
      for (std::int32_t i = kept - 1; i > place; --i) chosen[i] = chosen[i - 1];
      chosen[place] = one;
    }
    const float largest = logit[chosen[0]];
    for (std::int32_t i = 1; i < active; ++i)  // few, and nearly in order
      for (std::int32_t j = i; j > 0 && chosen[j] < chosen[j - 1]; --j) {
        const std::int32_t other = chosen[j];
        chosen[j] = chosen[j - 1];
        chosen[j - 1] = other;
      }
    float sum = 0.0f;
    for (std::int32_t i = 0; i < active; ++i) {
      share[i] = expf(logit[chosen[i]] - largest);
      sum += share[i];
    }
    if (softmax == RouterSoftmax::kOfAll) {
      sum = 0.0f;
      for (std::int32_t e = 0; e < experts; ++e) sum += expf(logit[e] - largest);
    }
    for (std::int32_t i = 0; i < active; ++i) share[i] /= sum;
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
