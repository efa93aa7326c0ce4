// A bound on numbers, compiled once per instruction set by each file that includes it after
// hwy/foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "kernels/cpu/tile-inl.h"

#if defined(CANOPY_KERNELS_CPU_CAP_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef CANOPY_KERNELS_CPU_CAP_INL
#else
#define CANOPY_KERNELS_CPU_CAP_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace canopy::cpu {
namespace HWY_NAMESPACE {

/// cap tanh(v / cap). NaN stays NaN.
HWY_INLINE Vec capped(Vec v, Vec cap) {
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Mul(cap, hn::Tanh(Floats(), hn::Div(v, cap))));
}

}  // namespace HWY_NAMESPACE
}  // namespace canopy::cpu
HWY_AFTER_NAMESPACE();
#endif  // CANOPY_KERNELS_CPU_CAP_INL
