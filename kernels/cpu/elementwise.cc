// Normalisation, activation and embedding: whatever works on one row at a time with vectors.
#include "kernels/cpu/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"  // before tile-inl.h
//
#include <cmath>
#include <string>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/tile-inl.h"
#include "src/base/error.h"

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

/// y_k = g_k (x_k r), r = 1 / sqrt(mean + eps): a width of four times with zeros appended, g / 2
/// and eps / 4 gives r twice as large and the same bits.
void rms_norm_row(const float* x, const uint8_t* g, DType g_dtype, float eps, size_t n, float* y) {
  const auto* from = reinterpret_cast<const uint8_t*>(x);
  const float r = 1.0f / std::sqrt(sum_of_squares(from, n) / static_cast<float>(n) + eps);
  const Vec rs = hn::Set(Floats(), r);
  const Unpack unpack = unpack_of(g_dtype);
  const StoredRow weights{reinterpret_cast<const std::byte*>(g), 0, static_cast<std::int64_t>(n)};
  HWY_ALIGN float gs[kBlock];
  for (size_t k0 = 0; k0 < n; k0 += kBlock) {
    const size_t count = std::min(kBlock, n - k0);
    unpack(weights, k0, count, gs, kLanes);
    for (size_t k = 0; k < count; k += kLanes)
      store_part(hn::Mul(hn::Load(Floats(), gs + k), hn::Mul(load_padded(from, k0 + k, n), rs)), y,
                 k0 + k, n);
  }
}

/// y_k = g_k ((x_k - mean) r) + b_k. The variance is of the differences: squares of values far from
/// zero would lose it.
void layer_norm_row(const float* x, const float* g, const float* b, float eps, size_t n, float* y) {
  const Floats d;
  const auto bytes_of = [](const float* row) { return reinterpret_cast<const uint8_t*>(row); };
  const auto width = static_cast<float>(n);
  const float mean =
      sum_over(bytes_of(x), n, [](Vec acc, Vec v, size_t) { return hn::Add(acc, v); }) / width;
  const Vec means = hn::Set(d, mean);
  const float squares = sum_over(bytes_of(x), n, [&](Vec acc, Vec v, size_t left) {
    const Vec apart = hn::IfThenElseZero(hn::FirstN(d, std::min(left, kLanes)), hn::Sub(v, means));
    return hn::MulAdd(apart, apart, acc);
  });
  const Vec rs = hn::Set(d, 1.0f / std::sqrt(squares / width + eps));
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec normed = hn::Mul(hn::Sub(load_padded(bytes_of(x), k, n), means), rs);
    const Vec scaled = hn::Mul(load_padded(bytes_of(g), k, n), normed);
    store_part(b == nullptr ? scaled : hn::Add(scaled, load_padded(bytes_of(b), k, n)), y, k, n);
  }
}

void swiglu_row(const float* gate, const float* up, size_t n, float* y) {
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec g = load_padded(reinterpret_cast<const uint8_t*>(gate), k, n);
    const Vec u = load_padded(reinterpret_cast<const uint8_t*>(up), k, n);
    store_part(hn::Mul(times_sigmoid(g, g), u), y, k, n);
  }
}

/// NaN stays NaN.
void clamped_row(const float* gate, const float* up, float limit, float alpha, size_t n, float* y) {
  const Floats d;
  const Vec most = hn::Set(d, limit), least = hn::Neg(most), steep = hn::Set(d, alpha),
            one = hn::Set(d, 1.0f);
  for (size_t k = 0; k < n; k += kLanes) {
    Vec g = load_padded(reinterpret_cast<const uint8_t*>(gate), k, n);
    Vec u = load_padded(reinterpret_cast<const uint8_t*>(up), k, n);
    g = hn::IfThenElse(hn::Gt(g, most), most, g);
    u = hn::IfThenElse(hn::Gt(u, most), most, u);
    u = hn::IfThenElse(hn::Lt(u, least), least, u);
    store_part(hn::Mul(times_sigmoid(g, hn::Mul(steep, g)), hn::Add(u, one)), y, k, n);
  }
}

/// NaN stays NaN.
void relu_row(const float* x, size_t n, float* y) {
  const Floats d;
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec v = load_padded(reinterpret_cast<const uint8_t*>(x), k, n);
    store_part(hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v), y, k, n);
  }
}

void silu_row(const float* x, size_t n, float* y) {
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec v = load_padded(reinterpret_cast<const uint8_t*>(x), k, n);
    store_part(times_sigmoid(v, v), y, k, n);
  }
}

void sigmoid_row(const float* x, size_t n, float* y) {
  const Vec one = hn::Set(Floats(), 1.0f);
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec v = load_padded(reinterpret_cast<const uint8_t*>(x), k, n);
    // exp of NaN is NaN on some processors alone.
    store_part(hn::IfThenElse(hn::IsNaN(v), v, times_sigmoid(one, v)), y, k, n);
  }
}

void relu_squared_row(const float* x, size_t n, float* y) {
  const Floats d;
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec v = load_padded(reinterpret_cast<const uint8_t*>(x), k, n);
    const Vec top = hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v);
    store_part(hn::Mul(top, top), y, k, n);
  }
}

/// NaN stays NaN, whatever exp makes of it.
void xielu_row(const float* x, const XieluFactors& xielu, size_t n, float* y) {
  const Floats d;
  const Vec positive = hn::Set(d, xielu.positive), negative = hn::Set(d, xielu.negative),
            beta = hn::Set(d, xielu.beta), eps = hn::Set(d, xielu.eps);
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec v = load_padded(reinterpret_cast<const uint8_t*>(x), k, n);
    const Vec below = hn::Mul(hn::Sub(hn::Expm1(d, hn::Min(v, eps)), v), negative);
    const Vec curved =
        hn::IfThenElse(hn::Gt(v, hn::Zero(d)), hn::Mul(hn::Mul(positive, v), v), below);
    store_part(hn::IfThenElse(hn::IsNaN(v), v, hn::Add(curved, hn::Mul(beta, v))), y, k, n);
  }
}

/// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2 u)), which is as exact where it is small.
HWY_INLINE Vec gelu(Vec v) {
  const Floats d;
  const Vec twice = hn::Set(d, 1.5957691216f), cubic = hn::Set(d, 0.044715f);  // 2 sqrt(2 / pi)
  const Vec u2 = hn::Mul(hn::Mul(twice, v), hn::MulAdd(cubic, hn::Mul(v, v), hn::Set(d, 1.0f)));
  return times_sigmoid(v, u2);
}

void gelu_tanh_row(const float* x, size_t n, float* y) {
  for (size_t k = 0; k < n; k += kLanes)
    store_part(gelu(load_padded(reinterpret_cast<const uint8_t*>(x), k, n)), y, k, n);
}

void geglu_row(const float* gate, const float* up, size_t n, float* y) {
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec g = load_padded(reinterpret_cast<const uint8_t*>(gate), k, n);
    const Vec u = load_padded(reinterpret_cast<const uint8_t*>(up), k, n);
    store_part(hn::Mul(gelu(g), u), y, k, n);
  }
}

/// y_k += factor x_k, rounded once, also where vectors have no such instruction.
void add_row(const float* x, float factor, size_t n, float* y) {
#if HWY_NATIVE_FMA
  const Vec factors = hn::Set(Floats(), factor);
  for (size_t k = 0; k < n; k += kLanes) {
    const Vec v = load_padded(reinterpret_cast<const uint8_t*>(x), k, n);
    const Vec sum = load_padded(reinterpret_cast<const uint8_t*>(y), k, n);
    store_part(hn::MulAdd(factors, v, sum), y, k, n);
  }
#else
  for (size_t k = 0; k < n; ++k) y[k] = std::fma(factor, x[k], y[k]);
#endif
}

void scale_row(float* x, float factor, float cap, size_t n) {
  const Floats d;
  const Vec factors = hn::Set(d, factor), caps = hn::Set(d, cap);
  for (size_t k = 0; k < n; k += kLanes) {
    Vec v = hn::Mul(factors, load_padded(reinterpret_cast<const uint8_t*>(x), k, n));
    if (cap != 0) v = capped(v, caps);
    store_part(v, x, k, n);
  }
}

void unpack_whole_row(const StoredRow& row, DType dtype, float* y) {
  const Unpack unpack = unpack_of(dtype);
  const auto n = static_cast<size_t>(row.columns);
  HWY_ALIGN float part[kBlock];
  for (size_t k0 = 0; k0 < n; k0 += kBlock) {
    const size_t count = std::min(kBlock, n - k0);
    unpack(row, k0, count, part, kLanes);
    std::memcpy(y + k0, part, count * sizeof(float));
  }
}

void add_whole_row(const StoredRow& row, DType dtype, float* y) {
  const Unpack unpack = unpack_of(dtype);
  const auto n = static_cast<size_t>(row.columns);
  HWY_ALIGN float part[kBlock];
  for (size_t k0 = 0; k0 < n; k0 += kBlock) {
    const size_t count = std::min(kBlock, n - k0);
    unpack(row, k0, count, part, kLanes);
    for (size_t k = 0; k < count; ++k) y[k0 + k] += part[k];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace canopy::cpu {

HWY_EXPORT(rms_norm_row);
HWY_EXPORT(layer_norm_row);
HWY_EXPORT(swiglu_row);
HWY_EXPORT(clamped_row);
HWY_EXPORT(relu_row);
HWY_EXPORT(relu_squared_row);
HWY_EXPORT(xielu_row);
HWY_EXPORT(gelu_tanh_row);
HWY_EXPORT(geglu_row);
HWY_EXPORT(add_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(silu_row);
HWY_EXPORT(sigmoid_row);
HWY_EXPORT(unpack_whole_row);
HWY_EXPORT(add_whole_row);

void rms_norm(Pool& pool, ConstTensorView x, ConstTensorView g, float eps, TensorView y) {
  const auto row = HWY_DYNAMIC_DISPATCH(rms_norm_row);
  const std::size_t n = to_size(x.dim(1));
  const auto* from = reinterpret_cast<const float*>(x.data());
  const auto* weights = reinterpret_cast<const std::uint8_t*>(g.data());
  auto* to = reinterpret_cast<float*>(y.data());
  for_rows(pool, to_size(x.dim(0)), n,
           [&](std::size_t i) { row(from + i * n, weights, g.dtype(), eps, n, to + i * n); });
}

void layer_norm(Pool& pool, ConstTensorView x, const LayerNorm& norm, TensorView y) {
  const auto row = HWY_DYNAMIC_DISPATCH(layer_norm_row);
  const std::size_t n = to_size(x.dim(1));
  const auto* from = reinterpret_cast<const float*>(x.data());
  const auto* g = reinterpret_cast<const float*>(norm.g.data());
  const auto* b = reinterpret_cast<const float*>(norm.b.data());
  auto* to = reinterpret_cast<float*>(y.data());
  const std::size_t period = norm.g.rank() == 2 ? to_size(norm.g.dim(0)) : 1;
  for_rows(pool, to_size(x.dim(0)), n, [&](std::size_t i) {
    const std::size_t at = i % period * n;
    row(from + i * n, g + at, b == nullptr ? nullptr : b + at, norm.eps, n, to + i * n);
  });
}

void swiglu(Pool& pool, ConstTensorView gate, ConstTensorView up, TensorView y,
            const Gating& gating) {
  const auto row = gating.kind == GatingKind::kGelu ? HWY_DYNAMIC_DISPATCH(geglu_row)
                                                    : HWY_DYNAMIC_DISPATCH(swiglu_row);
  const auto clamped = HWY_DYNAMIC_DISPATCH(clamped_row);
  const std::size_t n = to_size(gate.dim(1));
  const auto* gates = reinterpret_cast<const float*>(gate.data());
  const auto* ups = reinterpret_cast<const float*>(up.data());
  auto* to = reinterpret_cast<float*>(y.data());
  for_rows(pool, to_size(gate.dim(0)), n, [&](std::size_t i) {
    if (gating.kind == GatingKind::kClamped)
      clamped(gates + i * n, ups + i * n, gating.limit, gating.alpha, n, to + i * n);
    else
      row(gates + i * n, ups + i * n, n, to + i * n);
  });
}

void activate(Pool& pool, Activation activation, ConstTensorView x, TensorView y,
              const XieluFactors& xielu) {
  const auto row = activation == Activation::kRelu          ? HWY_DYNAMIC_DISPATCH(relu_row)
                   : activation == Activation::kSilu        ? HWY_DYNAMIC_DISPATCH(silu_row)
                   : activation == Activation::kSigmoid     ? HWY_DYNAMIC_DISPATCH(sigmoid_row)
                   : activation == Activation::kReluSquared ? HWY_DYNAMIC_DISPATCH(relu_squared_row)
                                                            : HWY_DYNAMIC_DISPATCH(gelu_tanh_row);
  const std::size_t n = to_size(x.dim(1));
  const auto* from = reinterpret_cast<const float*>(x.data());
  auto* to = reinterpret_cast<float*>(y.data());
  const auto by_numbers = HWY_DYNAMIC_DISPATCH(xielu_row);
  for_rows(pool, to_size(x.dim(0)), n, [&](std::size_t i) {
    if (activation == Activation::kXielu)
      by_numbers(from + i * n, xielu, n, to + i * n);
    else
      row(from + i * n, n, to + i * n);
  });
}

void add_to_row(std::span<const float> x, float factor, float* y) {
  HWY_DYNAMIC_DISPATCH(add_row)(x.data(), factor, x.size(), y);
}

void add(Pool& pool, ConstTensorView x, float factor, TensorView y) {
  const auto row = HWY_DYNAMIC_DISPATCH(add_row);
  const std::size_t n = to_size(x.dim(1));
  const auto* from = reinterpret_cast<const float*>(x.data());
  auto* to = reinterpret_cast<float*>(y.data());
  for_rows(pool, to_size(x.dim(0)), n,
           [&](std::size_t i) { row(from + i * n, factor, n, to + i * n); });
}

void scale(Pool& pool, TensorView x, float factor, float cap) {
  const auto row = HWY_DYNAMIC_DISPATCH(scale_row);
  const std::size_t n = to_size(x.dim(1));
  auto* rows = reinterpret_cast<float*>(x.data());
  for_rows(pool, to_size(x.dim(0)), n, [&](std::size_t i) { row(rows + i * n, factor, cap, n); });
}

void take_apart(Pool& pool, ConstTensorView fused, const RowParts& parts) {
  const std::size_t groups = to_size(fused.dim(1)), width = to_size(fused.dim(2));
  const auto* from = reinterpret_cast<const float*>(fused.data());
  for_rows(pool, to_size(fused.dim(0)), groups * width, [&](std::size_t i) {
    const float* row = from + i * groups * width;
    for (const RowPart& part : parts) {
      const std::size_t own = to_size(part.width);
      if (!part.y.empty()) {
        auto* const to = reinterpret_cast<float*>(part.y.data()) + i * to_size(part.y.dim(1)) +
                         to_size(part.first_column);
        for (std::size_t g = 0; g < groups; ++g)
          std::memcpy(to + g * own, row + g * width, own * sizeof(float));
      }
      row += own;
    }
  });
}

void embed(Pool& pool, WeightView table, ConstTensorView id, TensorView y, Accumulate accumulate) {
  const auto row = accumulate == Accumulate::kYes ? HWY_DYNAMIC_DISPATCH(add_whole_row)
                                                  : HWY_DYNAMIC_DISPATCH(unpack_whole_row);
  const std::size_t n = to_size(table.columns());
  const auto* ids = reinterpret_cast<const std::int32_t*>(id.data());
  auto* to = reinterpret_cast<float*>(y.data());
  for_rows(pool, to_size(id.dim(0)), n, [&](std::size_t i) {
    if (ids[i] < 0 || ids[i] >= table.rows())
      throw Error("embed: token id " + std::to_string(ids[i]) + " is outside a table of " +
                  std::to_string(table.rows()) + " rows");
    row(table.row(ids[i]), table.format(), to + i * n);
  });
}

}  // namespace canopy::cpu
#endif  // HWY_ONCE
