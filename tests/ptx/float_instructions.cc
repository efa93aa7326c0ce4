#include <cmath>
#include <limits>

#include "tests/ptx/instructions.h"

namespace canopy::ptx {

namespace {

/// Defines comparisons: those whose name ends in u are true of what is no number.
template <class T>
void define_comparisons(Definitions& all, const std::string& type) {
  define<bool(T, T)>(all, "setp.eq." + type, [](T a, T b) { return a == b; });
  define<bool(T, T)>(all, "setp.ne." + type, [](T a, T b) { return a < b || b < a; });
  define<bool(T, T)>(all, "setp.lt." + type, [](T a, T b) { return a < b; });
  define<bool(T, T)>(all, "setp.le." + type, [](T a, T b) { return a <= b; });
  define<bool(T, T)>(all, "setp.gt." + type, [](T a, T b) { return a > b; });
  define<bool(T, T)>(all, "setp.ge." + type, [](T a, T b) { return a >= b; });
  define<bool(T, T)>(all, "setp.equ." + type, [](T a, T b) { return !(a < b || b < a); });
  define<bool(T, T)>(all, "setp.neu." + type, [](T a, T b) { return a != b; });
  define<bool(T, T)>(all, "setp.ltu." + type, [](T a, T b) { return !(a >= b); });
  define<bool(T, T)>(all, "setp.leu." + type, [](T a, T b) { return !(a > b); });
  define<bool(T, T)>(all, "setp.gtu." + type, [](T a, T b) { return !(a <= b); });
  define<bool(T, T)>(all, "setp.geu." + type, [](T a, T b) { return !(a < b); });
  define<bool(T, T)>(all, "setp.num." + type, [](T a, T b) { return a == a && b == b; });
  define<bool(T, T)>(all, "setp.nan." + type, [](T a, T b) { return a != a || b != b; });
}

/// The larger number, of zeros the positive one; what is no number gives way.
template <class T>
T larger(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}

template <class T>
void define_arithmetic(Definitions& all, const std::string& type) {
  for (const std::string rounding : {"", "rn."}) {
    define<T(T, T)>(all, "add." + rounding + type, [](T a, T b) { return a + b; });
    define<T(T, T)>(all, "sub." + rounding + type, [](T a, T b) { return a - b; });
    define<T(T, T)>(all, "mul." + rounding + type, [](T a, T b) { return a * b; });
  }
  define<T(T, T)>(all, "div.rn." + type, [](T a, T b) { return a / b; });
  define<T(T)>(all, "rcp.rn." + type, [](T a) { return 1 / a; });
  define<T(T)>(all, "sqrt.rn." + type, [](T a) { return std::sqrt(a); });
  define<T(T, T, T)>(all, "fma.rn." + type, [](T a, T b, T c) { return std::fma(a, b, c); });
  define<T(T)>(all, "neg." + type, [](T a) { return -a; });
  define<T(T)>(all, "abs." + type, [](T a) { return std::abs(a); });
  define<T(T, T)>(all, "max." + type, [](T a, T b) { return larger(a, b); });
  define<T(T, T)>(all, "min." + type, [](T a, T b) { return -larger(-a, -b); });
  define<T(T)>(all, "mov." + type, [](T a) { return a; });
  define<T(T, T, bool)>(all, "selp." + type, [](T a, T b, bool first) { return first ? a : b; });
  define_comparisons<T>(all, type);
}

/// a * b + c, rounded down. The product is exact in a double, and the sum's error is known
/// (Knuth's TwoSum); so the nearest float is the result, or the one above it.
float fma_down(float a, float b, float c) {
  const double product = double{a} * b, sum = product + c;
  const auto nearest = static_cast<float>(sum);
  if (!std::isfinite(nearest)) return nearest;
  const double second = sum - product;
  const double error = (product - (sum - second)) + (c - second);
  const bool above = nearest > sum || (nearest == sum && error < 0);
  return above ? std::nextafter(nearest, -std::numeric_limits<float>::infinity()) : nearest;
}

/// a + b, rounded towards zero.
float add_to_zero(float a, float b) {
  return double{a} + b < 0 ? -fma_down(-a, 1, -b) : fma_down(a, 1, b);
}

template <class T>
T flushed(T x) {
  return std::abs(x) < std::numeric_limits<T>::min() ? std::copysign(T{0}, x) : x;
}

/// A double without the lower 32 bits of its mantissa.
double upper_half(double x) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits &= ~std::uint64_t{0xffffffff};
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

}  // namespace

void define_floats(Definitions& all) {
  define_arithmetic<float>(all, "f32");
  define_arithmetic<double>(all, "f64");
  define<float(float, float, float)>(all, "fma.rm.f32",
                                     [](float a, float b, float c) { return fma_down(a, b, c); });
  define<float(float, float)>(all, "add.rz.f32",
                              [](float a, float b) { return add_to_zero(a, b); });
  define<float(float)>(all, "ex2.approx.f32",
                       [](float x) { return static_cast<float>(std::exp2(double{x})); });
  define<float(float)>(all, "ex2.approx.ftz.f32", [](float x) {
    return flushed(static_cast<float>(std::exp2(double{flushed(x)})));
  });
  define<float(float, float)>(all, "copysign.f32",
                              [](float sign, float of) { return std::copysign(of, sign); });
  define<float(float)>(all, "rcp.approx.ftz.f32", [](float x) { return flushed(1 / flushed(x)); });
  define<double(double)>(all, "rcp.approx.ftz.f64",
                         [](double x) { return upper_half(flushed(1 / flushed(upper_half(x)))); });
}

}  // namespace canopy::ptx
