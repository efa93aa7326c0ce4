#pragma once
// Kernels of a mixture of experts: which experts a row has, and rows on their way to an expert and
// back. The products between are those of linear.
#include "kernels/cuda/block.h"
#include "kernels/ops.h"

namespace canopy::cuda {

/// Ops::route. A block for each row. An expert's place among all is the number of those that are
/// better, and its place among the chosen ones the number of chosen ones before it.
struct RouteRows {
  static constexpr int kThreads = 128;
  const float* logits;
  std::int32_t experts, active;
  bool sigmoid, normalised;
  float scale;
  const float* bias;  // or null
  std::int32_t* expert;
  float* weight;

  static Grid grid(std::int64_t rows, std::int64_t experts) {
    return {rows, threads_for(experts, kThreads),
            static_cast<std::size_t>(experts + 2) * 3 * sizeof(float)};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const float* const logit = logits + block.index() * experts;
    std::int32_t* const chosen = expert + block.index() * active;
    float* const share = weight + block.index() * active;
    float* const parts = block.template shared<float>(experts);
    float* const ranks = block.template shared<float>(experts);
    auto* const is_chosen = block.template shared<std::int32_t>(experts);
    float* const sum = block.template shared<float>(1);

    auto largest = block.template each<float>();
    block.step([&](int t) {
      largest[t] = -INFINITY;
      for (std::int32_t e = t; e < experts; e += block.threads())
        largest[t] = fmaxf(largest[t], logit[e]);
    });
    const float most = block.most(largest);
    block.step([&](int t) {
      for (std::int32_t e = t; e < experts; e += block.threads())
        parts[e] = sigmoid ? 1.0f / (1.0f + expf(-logit[e])) : expf(logit[e] - most);
    });
    // By rising index, as on the CPU.
    block.step([&](int t) {
      if (t != 0) return;
      *sum = 1.0f;
      if (sigmoid || (normalised && bias == nullptr)) return;
      *sum = 0.0f;
      for (std::int32_t e = 0; e < experts; ++e) *sum += parts[e];
    });
    block.step([&](int t) {
      for (std::int32_t e = t; e < experts; e += block.threads())
        ranks[e] = bias != nullptr ? parts[e] / *sum + bias[e] : sigmoid ? parts[e] : logit[e];
    });
    block.step([&](int t) {
      for (std::int32_t e = t; e < experts; e += block.threads()) {
        std::int32_t place = 0;
        for (std::int32_t other = 0; other < experts; ++other)
          if (better(ranks[other], ranks[e]) || (other < e && !better(ranks[e], ranks[other])))
            ++place;
        is_chosen[e] = place < active ? 1 : 0;
      }
    });
    block.step([&](int t) {
      for (std::int32_t e = t; e < experts; e += block.threads()) {
        if (is_chosen[e] == 0) continue;
        std::int32_t place = 0;
        for (std::int32_t before = 0; before < e; ++before) place += is_chosen[before];
        chosen[place] = e;
        share[place] = parts[e];
      }
    });
    block.step([&](int t) {
      if (t != 0) return;
      float all = *sum;
      if (normalised) {
        all = 0.0f;
        for (std::int32_t i = 0; i < active; ++i) all += share[i];
      }
      if (sigmoid) all += 1e-20f;  // so that sigmoids which are all 0 stay that
      for (std::int32_t i = 0; i < active; ++i) share[i] = share[i] / all * scale;
    });
  }

 private:
  CANOPY_KERNEL static bool better(float a, float b) {
    return isnan(a) || isnan(b) ? isnan(a) && !isnan(b) : a > b;
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
