// A mixture of experts: which experts a row has, and what one of them gives to all rows that have
// it. Products are those of linear(), so that a row's values do not depend on the rows beside it.
#include "kernels/cpu/mixture.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/linear.h"

namespace canopy::cpu {

namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}
std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

template <class T>
T* at(const TensorView& view) {
  return reinterpret_cast<T*>(view.data());
}
template <class T>
const T* at(const ConstTensorView& view) {
  return reinterpret_cast<const T*>(view.data());
}

/// Indices of the `count` largest, by rising index; equal ones by lower index, NaN before all.
void choose(const float* logit, std::int32_t experts, std::size_t count, std::int32_t* chosen) {
  const auto better = [&](std::int32_t a, std::int32_t b) {
    if (std::isnan(logit[a]) || std::isnan(logit[b]))
      return std::isnan(logit[a]) > std::isnan(logit[b]);
    return logit[a] > logit[b];
  };
  std::size_t kept = 0;  // the best so far, best first
  for (std::int32_t one = 0; one < experts; ++one) {
    std::size_t place = kept;
    while (place > 0 && better(one, chosen[place - 1])) --place;
    if (place == count) continue;
    kept = std::min(kept + 1, count);
    std::copy_backward(chosen + place, chosen + kept - 1, chosen + kept);
    chosen[place] = one;
  }
  std::sort(chosen, chosen + count);
}

/// Where the parts of the scratch of expert() begin, behind its rows of x, and its size.
struct ExpertScratch {
  std::size_t gate, up, y, linear, bytes;
  ExpertScratch(std::int64_t rows, std::int64_t dim, std::int64_t hidden, std::size_t threads) {
    const std::size_t n = to_size(rows), wide = n * to_size(dim) * sizeof(float),
                      inner = n * to_size(hidden) * sizeof(float);
    gate = aligned(wide);
    up = gate + aligned(inner);
    y = up + aligned(inner);
    linear = y + aligned(wide);
    bytes = linear + linear_scratch_bytes(rows, std::max(dim, hidden), threads);
  }
};

}  // namespace

void route(ConstTensorView logits, RouterSoftmax softmax, const RoutedRows& to) {
  const std::size_t active = to_size(to.expert.dim(1)), experts = to_size(logits.dim(1));
  for (std::int64_t row = 0; row < logits.dim(0); ++row) {
    const float* const logit = at<float>(logits) + to_size(row) * experts;
    auto* const chosen = at<std::int32_t>(to.expert) + to_size(row) * active;
    float* const weight = at<float>(to.weight) + to_size(row) * active;
    choose(logit, static_cast<std::int32_t>(experts), active, chosen);
    float largest = logit[chosen[0]];
    for (std::size_t i = 1; i < active; ++i) largest = std::max(largest, logit[chosen[i]]);
    float sum = 0.0f;
    for (std::size_t i = 0; i < active; ++i) {
      weight[i] = std::exp(logit[chosen[i]] - largest);
      if (softmax == RouterSoftmax::kOfChosen) sum += weight[i];
    }
    if (softmax == RouterSoftmax::kOfAll)
      for (std::size_t e = 0; e < experts; ++e) sum += std::exp(logit[e] - largest);
    for (std::size_t i = 0; i < active; ++i) weight[i] /= sum;
  }
}

std::size_t expert_scratch_bytes(std::int64_t rows, std::int64_t dim, std::int64_t hidden,
                                 std::size_t threads) {
  return ExpertScratch(rows, dim, hidden, threads).bytes;
}

void expert(Pool& pool, std::byte* scratch, ConstTensorView x, ConstTensorView weight,
            ConstTensorView own_rows, const ExpertWeights& weights, TensorView sum) {
  const std::int64_t dim = x.dim(1), hidden = weights.gate.rows(), n = own_rows.dim(0);
  const std::size_t columns = to_size(dim);
  const std::span rows(at<ExpertRow>(own_rows), to_size(n));
  const ExpertScratch parts(n, dim, hidden, pool.size());
  const TensorView own(scratch, DType::kF32, {n, dim}),
      gate(scratch + parts.gate, DType::kF32, {n, hidden}),
      up(scratch + parts.up, DType::kF32, {n, hidden}), y(scratch + parts.y, DType::kF32, {n, dim});
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(at<float>(x) + to_size(rows[i].row) * columns, columns,
                at<float>(own) + i * columns);
  const std::array gate_up{Projection{weights.gate, {}, gate}, Projection{weights.up, {}, up}};
  linear(pool, scratch + parts.linear, own, gate_up);
  swiglu(pool, gate, up, gate);
  const std::array down{Projection{weights.down, {}, y}};
  linear(pool, scratch + parts.linear, gate, down);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float share = rows[i].weight < 0 ? 1.0f : at<float>(weight)[to_size(rows[i].weight)];
    const float* const from = at<float>(y) + i * columns;
    float* const to = at<float>(sum) + to_size(rows[i].row) * columns;
    for (std::size_t k = 0; k < columns; ++k) to[k] = std::fma(share, from[k], to[k]);
  }
}

}  // namespace canopy::cpu
