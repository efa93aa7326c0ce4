// Parts of rows of f32, their sums, and functions of their values, compiled once per instruction
// set by each file that includes it after hwy/foreach_target.h.
#include <cstring>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/tile-inl.h"

#if defined(CANOPY_KERNELS_CPU_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef CANOPY_KERNELS_CPU_ROWS_INL
#else
#define CANOPY_KERNELS_CPU_ROWS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

/// Elements [k, k + up to kLanes) of a row of n f32 at any address, zeros past its end.
HWY_INLINE Vec load_padded(const uint8_t* row, size_t k, size_t n) {
  if (k + kLanes <= n) return load_plain<format::F32>(row + k * sizeof(float));
  uint8_t tail[kLanes * sizeof(float)] = {};
  std::memcpy(tail, row + k * sizeof(float), (n - k) * sizeof(float));
  return load_plain<format::F32>(tail);
}
HWY_INLINE void store_part(Vec v, float* row, size_t k, size_t n) {
  if (k + kLanes <= n) return hn::StoreU(v, Floats(), row + k);
  HWY_ALIGN float tail[kLanes];
  hn::Store(v, Floats(), tail);
  std::memcpy(row + k, tail, (n - k) * sizeof(float));
}

/// A sum over a row, to which add(sum, elements, how many of them are the row's) adds: element k
/// always goes to lane k % kLanes of accumulator k / kLanes % 4, so zeros appended to a row change
/// nothing.
template <class Add>
HWY_INLINE float sum_over(const uint8_t* x, size_t n, const Add& add) {
  Vec acc[4] = {hn::Zero(Floats()), hn::Zero(Floats()), hn::Zero(Floats()), hn::Zero(Floats())};
  for (size_t k = 0; k < n; k += 4 * kLanes)
    for (size_t a = 0; a < 4 && k + a * kLanes < n; ++a)
      acc[a] = add(acc[a], load_padded(x, k + a * kLanes, n), n - (k + a * kLanes));
  const auto sums = sums_of_lanes(acc[0], acc[1], acc[2], acc[3]);
  HWY_ALIGN float four[4];
  hn::Store(sums, hn::Full128<float>(), four);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

HWY_INLINE float sum_of_squares(const uint8_t* x, size_t n) {
  return sum_over(x, n, [](Vec acc, Vec v, size_t) { return hn::MulAdd(v, v, acc); });
}

/// v / (1 + exp(-u)) through e = exp(-|u|), which cannot overflow: for negative u it is
/// v * e / (1 + e).
HWY_INLINE Vec times_sigmoid(Vec v, Vec u) {
  const Floats d;
  const Vec e = hn::Exp(d, hn::Neg(hn::Abs(u)));
  const Vec top = hn::IfThenElse(hn::Lt(u, hn::Zero(d)), hn::Mul(v, e), v);
  return hn::Div(top, hn::Add(hn::Set(d, 1.0f), e));
}

/// cap tanh(v / cap). NaN stays NaN.
HWY_INLINE Vec capped(Vec v, Vec cap) {
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Mul(cap, hn::Tanh(Floats(), hn::Div(v, cap))));
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();
#endif  // CANOPY_KERNELS_CPU_ROWS_INL
