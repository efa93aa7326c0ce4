// A mixture of experts: which experts a row has, and what one of them gives to all rows that have
// it. Products are those of linear(), so that a row's values do not depend on the rows next to it.
#include "kernels/cpu/mixture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/linear.h"

namespace canopy::cpu {

namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <class T>
T* at(const TensorView& view) {
  return reinterpret_cast<T*>(view.data());
}
template <class T>
const T* at(const ConstTensorView& view) {
  return reinterpret_cast<const T*>(view.data());
}

/// The router's view of one row.
class RowScores {
 public:
  RowScores(std::span<const float> logit, const RouterRule& rule)
      : logit_(logit),
        bias_(rule.bias.empty() ? nullptr : at<float>(rule.bias)),
        sigmoid_(rule.score == RouterScore::kSigmoid) {
    if (sigmoid_) return;
    for (const float one : logit_) largest_ = std::max(largest_, one);
    if (rule.normalised == Normalised::kYes && bias_ == nullptr) return;
    for (const float one : logit_) sum_ += std::exp(one - largest_);
  }
  /// Gives the score but for the sum of a softmax.
  float part(std::size_t e) const {
    return sigmoid_ ? 1.0f / (1.0f + std::exp(-logit_[e])) : std::exp(logit_[e] - largest_);
  }
  float sum() const { return sigmoid_ ? 1.0f : sum_; }
  /// Grows with what an expert is chosen by.
  float rank(std::size_t e) const {
    if (bias_ != nullptr) return part(e) / sum() + bias_[e];
    return sigmoid_ ? part(e) : logit_[e];
  }

 private:
  std::span<const float> logit_;
  const float* bias_;
  bool sigmoid_;
  float largest_ = -std::numeric_limits<float>::infinity(), sum_ = 0.0f;
};

/// Finds the experts of highest rank, by rising index; equal ones by lower index, NaN before all.
/// `rank`: scratch of as many numbers.
void choose(const RowScores& scores, std::size_t experts, std::span<std::int32_t> chosen,
            float* rank) {
  const auto better = [](float a, float b) {
    return std::isnan(a) || std::isnan(b) ? std::isnan(a) > std::isnan(b) : a > b;
  };
  std::size_t kept = 0;  // the best so far, best first
  for (std::size_t one = 0; one < experts; ++one) {
    const float own = scores.rank(one);
    std::size_t place = kept;
    while (place > 0 && better(own, rank[place - 1])) --place;
    if (place == chosen.size()) continue;
    kept = std::min(kept + 1, chosen.size());
    std::copy_backward(&chosen[place], &chosen[kept - 1], chosen.data() + kept);
    std::copy_backward(rank + place, rank + kept - 1, rank + kept);
    chosen[place] = static_cast<std::int32_t>(one);
    rank[place] = own;
  }
  std::sort(chosen.begin(), chosen.end());
}

/// Places of the parts of expert()'s scratch, after its rows of x, and its size.
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

void route(ConstTensorView logits, const RouterRule& rule, const RoutedRows& to) {
  const std::size_t active = to_size(to.expert.dim(1)), experts = to_size(logits.dim(1));
  for (std::int64_t row = 0; row < logits.dim(0); ++row) {
    const RowScores scores({at<float>(logits) + to_size(row) * experts, experts}, rule);
    const std::span chosen(at<std::int32_t>(to.expert) + to_size(row) * active, active);
    float* const weight = at<float>(to.weight) + to_size(row) * active;
    choose(scores, experts, chosen, weight);
    float sum = 0.0f;
    for (std::size_t i = 0; i < active; ++i) {
      weight[i] = scores.part(to_size(chosen[i]));
      sum += weight[i];
    }
    if (rule.normalised == Normalised::kNo) sum = scores.sum();
    // So that sigmoids which are all 0 stay that.
    if (rule.score == RouterScore::kSigmoid) sum += 1e-20f;
    for (std::size_t i = 0; i < active; ++i) weight[i] = weight[i] / sum * rule.scale;
  }
}

std::size_t expert_scratch_bytes(std::int64_t rows, std::int64_t dim, std::int64_t hidden,
                                 std::size_t threads) {
  return ExpertScratch(rows, dim, hidden, threads).bytes;
}

void expert(Pool& pool, std::byte* scratch, ConstTensorView x, ConstTensorView weight,
            ConstTensorView own_rows, const ExpertWeights& weights, const ExpertForm& form,
            TensorView sum) {
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
  const std::array gate_up{Projection{weights.gate, form.gate_bias, gate},
                           Projection{weights.up, form.up_bias, up}};
  linear(pool, scratch + parts.linear, own, gate_up);
  swiglu(pool, gate, up, gate, form.gating);
  const std::array down{Projection{weights.down, form.down_bias, y}};
  linear(pool, scratch + parts.linear, gate, down);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float share = rows[i].weight < 0 ? 1.0f : at<float>(weight)[to_size(rows[i].weight)];
    add_to_row({at<float>(y) + i * columns, columns}, share,
               at<float>(sum) + to_size(rows[i].row) * columns);
  }
}

}  // namespace canopy::cpu
