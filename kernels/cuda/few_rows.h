#pragma once
// Products of few rows: a warp for each row of weights, which is read once, as it is stored. A
// thread takes a piece at a time.
#include <algorithm>
#include <span>
#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/cuda/pieces.h"
#include "kernels/cuda/rows.h"
#include "kernels/gpu_scratch.h"

namespace canopy::cuda {

/// True of formats whose products of few rows have these kernels.
template <class Format>
inline constexpr bool kByPieces = !kIsPacked<Format> && !std::is_same_v<Format, format::F32>;

/// Gives the weights of a piece as the matrix units would have them, so that the sums of few rows
/// and of many differ by their order alone: rounded to Multiplied, which has 16 bits.
template <class Format, class Multiplied>
CANOPY_KERNEL void decode_piece(const StoredRow& row, std::int64_t k, float (&to)[kPiece]) {
  if constexpr (std::is_same_v<Format, Multiplied>) {
    const auto bits = load<Sixteen>(row.data + k * std::int64_t{sizeof(std::uint16_t)});
    CANOPY_UNROLL
    for (int i = 0; i < kPiece; ++i)
      to[i] = Multiplied::decode(reinterpret_cast<const std::byte*>(&bits.bits[i]), 0);
  } else {
    weights_of_piece<Format>(row, k, to);
    CANOPY_UNROLL
    for (float& value : to) {
      const typename Multiplied::Element bits = Multiplied::encode(value);
      value = Multiplied::decode(reinterpret_cast<const std::byte*>(&bits), 0);
    }
  }
}

/// Adds the product of a piece with activations of Multiplied, at a multiple of 16 bytes.
template <class Multiplied>
CANOPY_KERNEL float add_piece(float sum, const std::byte* x, const float (&weights)[kPiece]) {
  const auto bits = load<Sixteen>(x);
  CANOPY_UNROLL
  for (int i = 0; i < kPiece; ++i)
    sum += Multiplied::decode(reinterpret_cast<const std::byte*>(&bits.bits[i]), 0) * weights[i];
  return sum;
}

/// Sums of a thread, one for each row of activations.
struct RowSums {
  static constexpr int kMost = 8;
  float of[kMost] = {};
};

/// Adds thread t's share of the products of a row of weights with `rows` rows of activations, of
/// which x(i) is the i-th.
template <class Format, class Multiplied, class Rows>
CANOPY_KERNEL void add_row(RowSums& sums, const StoredRow& row, int rows, int t, const Rows& x) {
  CANOPY_UNROLL_BY_4
  for (std::int64_t k = t % 32 * kPiece; k < row.columns; k += 32 * kPiece) {
    float weights[kPiece];
    decode_piece<Format, Multiplied>(row, k, weights);
    CANOPY_UNROLL
    for (int i = 0; i < RowSums::kMost; ++i)
      if (i < rows)
        sums.of[i] = add_piece<Multiplied>(sums.of[i],
                                           x(i) + k * std::int64_t{sizeof(std::uint16_t)}, weights);
  }
}

/// Calls take(t, i, sum) in the first thread of each warp with the sum of its threads' sums i, for
/// each i below `rows`.
template <class Block, class Each, class Take>
CANOPY_KERNEL void sum_rows(Block& block, Each& sums, int rows, const Take& take) {
  CANOPY_UNROLL
  for (int i = 0; i < RowSums::kMost; ++i)
    if (i < rows) {
      auto one = block.template each<float>();
      block.step([&](int t) { one[t] = sums[t].of[i]; });
      block.template lanes_sum<32>(one);
      block.step([&](int t) {
        if (t % 32 == 0) take(t, i, one[t]);
      });
    }
}

/// y = (Accumulate: y +) factor x W^T + bias for few rows of x [rows, columns] of Multiplied.
/// kWarps rows of W per block; columns are whole pieces.
template <class Format, class Multiplied>
struct FewRows {
  static constexpr int kWarps = 4, kThreads = 32 * kWarps, kMostRows = RowSums::kMost;
  const std::byte* x;
  int rows;
  MatrixRows<Format> w;
  std::int64_t outputs;
  const float* bias;  // or null
  float* y;
  std::int64_t stride, first_column;
  bool accumulate;
  float factor;

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    auto sums = block.template each<RowSums>();
    const auto output = [&](int t) { return block.index() * kWarps + t / 32; };
    block.step([&](int t) {
      if (output(t) < outputs)
        add_row<Format, Multiplied>(sums[t], w[output(t)], rows, t, [&](int i) {
          return x + i * w.columns * std::int64_t{sizeof(std::uint16_t)};
        });
    });
    sum_rows(block, sums, rows, [&](int t, int i, float sum) {
      if (output(t) >= outputs) return;
      const float value = sum * factor + (bias != nullptr ? bias[output(t)] : 0.0f);
      float& to = y[i * stride + first_column + output(t)];
      to = accumulate ? to + value : value;
    });
  }
};

/// An expert's part in a sweep of few rows: its matrices and biases, which may be null, and its
/// rows, of which the first is row `first` of the inner values of all.
struct ExpertPart {
  const std::byte *gate, *gate_companion, *up, *up_companion, *down, *down_companion;
  const float *gate_bias, *up_bias, *down_bias;
  const ExpertRow* rows;
  std::int32_t count, first;
};

/// The experts of a launch, which have their shapes in common.
struct ExpertParts {
  static constexpr int kMost = 9;  // each with as many rows as there are sums: FewExpertsScratch
  std::int32_t count;
  std::int64_t dim, hidden;
  ExpertPart of[kMost];
};

/// inner = gating(x gate^T + bias, x up^T + bias) of the rows of several experts, at once. Shapes:
/// x [n, dim], inner [rows of all, hidden], both of Multiplied. kWarps inner values per block, part
/// by part.
template <class Format, class Multiplied>
struct ExpertsIn {
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  ExpertParts parts;
  Gating gating;
  const std::byte* x;
  std::byte* inner;

  Grid grid() const {
    return {parts.count * ceil_div<std::int64_t>(parts.hidden, kWarps), kThreads};
  }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    constexpr std::int64_t kHalf = sizeof(std::uint16_t);
    const std::int64_t blocks = ceil_div<std::int64_t>(parts.hidden, kWarps);
    const ExpertPart& part = parts.of[block.index() / blocks];
    const auto output = [&](int t) { return block.index() % blocks * kWarps + t / 32; };
    const auto row_of_x = [&](int i) { return x + part.rows[i].row * parts.dim * kHalf; };
    auto gates = block.template each<RowSums>(), ups = block.template each<RowSums>();
    block.step([&](int t) {
      if (output(t) >= parts.hidden) return;
      const MatrixRows<Format> gate{part.gate, part.gate_companion, parts.dim},
          up{part.up, part.up_companion, parts.dim};
      add_row<Format, Multiplied>(gates[t], gate[output(t)], part.count, t, row_of_x);
      add_row<Format, Multiplied>(ups[t], up[output(t)], part.count, t, row_of_x);
    });
    auto gate_sums = block.template each<RowSums>();
    const auto biased = [&](float sum, const float* bias, int t) {
      return sum + (bias != nullptr ? bias[output(t)] : 0.0f);
    };
    sum_rows(block, gates, part.count, [&](int t, int i, float sum) {
      if (output(t) < parts.hidden) gate_sums[t].of[i] = biased(sum, part.gate_bias, t);
    });
    sum_rows(block, ups, part.count, [&](int t, int i, float sum) {
      if (output(t) < parts.hidden)
        store_within<Multiplied>(inner, (part.first + i) * parts.hidden + output(t),
                                 gated(gate_sums[t].of[i], biased(sum, part.up_bias, t), gating));
    });
  }
};

/// sum += weight (inner down^T + bias) of the rows of several experts, one after the other. Shapes:
/// inner as above; sum [n, dim]. kWarps columns of the sum per block.
template <class Format, class Multiplied>
struct ExpertsOut {
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  ExpertParts parts;
  const std::byte* inner;
  const float* weight;
  float* sum;

  Grid grid() const { return {ceil_div<std::int64_t>(parts.dim, kWarps), kThreads}; }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const auto output = [&](int t) { return block.index() * kWarps + t / 32; };
    for (int at = 0; at < parts.count; ++at) {
      const ExpertPart& part = parts.of[at];
      auto sums = block.template each<RowSums>();
      block.step([&](int t) {
        if (output(t) >= parts.dim) return;
        const MatrixRows<Format> down{part.down, part.down_companion, parts.hidden};
        add_row<Format, Multiplied>(sums[t], down[output(t)], part.count, t, [&](int i) {
          return inner + (part.first + i) * parts.hidden * std::int64_t{sizeof(std::uint16_t)};
        });
      });
      sum_rows(block, sums, part.count, [&](int t, int i, float value) {
        if (output(t) >= parts.dim) return;
        const ExpertRow of = part.rows[i];
        const float share = of.weight < 0 ? 1.0f : weight[of.weight];
        if (part.down_bias != nullptr) value += part.down_bias[output(t)];
        float& to = sum[of.row * parts.dim + output(t)];
        to = fmaf(share, value, to);
      });
    }
  }
};

/// True if experts can be computed at once: few rows each, and matrices of the same shapes and
/// formats, of whole pieces and without factors.
inline bool are_few_and_alike(std::span<const ExpertUse> uses) {
  const ExpertWeights& first = uses[0].weights;
  return first.gate.columns() % kPiece == 0 && first.gate.rows() % kPiece == 0 &&
         std::ranges::all_of(uses, [&](const ExpertUse& use) {
           const ExpertWeights& w = use.weights;
           return w.gate.format() == first.gate.format() && w.up.format() == w.gate.format() &&
                  w.down.format() == first.down.format() && w.gate.factor() == 1 &&
                  w.up.factor() == 1 && w.down.factor() == 1 &&
                  w.gate.rows() == first.gate.rows() && use.rows.dim(0) <= RowSums::kMost;
         });
}

/// The launches of such experts, as Ops::experts has them.
class FewExperts {
 public:
  FewExperts(const ConstTensorView& x, const ConstTensorView& weight,
             std::span<const ExpertUse> uses, const TensorView& sum)
      : x_(x),
        weight_(floats(weight)),
        sum_(reinterpret_cast<float*>(sum.data())),
        gating_(uses[0].form.gating),
        parts_{static_cast<std::int32_t>(uses.size()), x.dim(1), uses[0].weights.gate.rows(), {}} {
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const auto& [w, form, own] = uses[i];
      parts_.of[i] = {w.gate.payload(),
                      w.gate.companion().data,
                      w.up.payload(),
                      w.up.companion().data,
                      w.down.payload(),
                      w.down.companion().data,
                      floats(form.gate_bias),
                      floats(form.up_bias),
                      floats(form.down_bias),
                      reinterpret_cast<const ExpertRow*>(own.data()),
                      static_cast<std::int32_t>(own.dim(0)),
                      rows_};
      rows_ += parts_.of[i].count;
    }
  }
  std::size_t scratch_bytes() const { return layout().bytes; }
  std::int64_t values_of_x() const { return x_.dim(0) * x_.dim(1); }

  template <class Multiplied>
  RoundInput<Multiplied> rounded(std::byte* scratch) const {
    return {floats(x_), values_of_x(), scratch};
  }
  template <class Format, class Multiplied>
  ExpertsIn<Format, Multiplied> in(std::byte* scratch) const {
    return {parts_, gating_, scratch, scratch + layout().inner};
  }
  template <class Format, class Multiplied>
  ExpertsOut<Format, Multiplied> out(std::byte* scratch) const {
    return {parts_, scratch + layout().inner, weight_, sum_};
  }

 private:
  static const float* floats(const ConstTensorView& view) {
    return view.empty() ? nullptr : reinterpret_cast<const float*>(view.data());
  }
  FewExpertsScratch layout() const { return {x_.dim(0), rows_, parts_.dim, parts_.hidden}; }

  const ConstTensorView x_;
  const float* const weight_;
  float* const sum_;
  const Gating gating_;
  ExpertParts parts_;
  std::int32_t rows_ = 0;
};

}  // namespace canopy::cuda
