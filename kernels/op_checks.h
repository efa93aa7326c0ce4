#pragma once
// Private to the checks of ops: views of the shapes and types that they take.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/tensor.h"
#include "src/base/error.h"

namespace canopy {

inline std::string shape_of(ConstTensorView view) {
  std::string text = "[";
  for (int axis = 0; axis < view.rank(); ++axis)
    text += (axis == 0 ? "" : ", ") + std::to_string(view.dim(axis));
  return text + "]";
}

inline std::string shape_of(std::initializer_list<std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape)
    text += (text.size() == 1 ? "" : ", ") + (extent < 0 ? "any" : std::to_string(extent));
  return text + "]";
}

inline constexpr std::int64_t kAny = -1;

/// Throws unless the view has this shape (kAny fits every extent) and one of these dtypes.
inline void check(const char* op, const char* what, ConstTensorView view,
                  std::initializer_list<std::int64_t> shape, std::initializer_list<DType> dtypes) {
  bool fits = view.rank() == static_cast<int>(shape.size());
  int axis = 0;
  for (const std::int64_t extent : shape) {
    if (!fits) break;
    fits = extent == kAny || view.dim(axis) == extent;
    ++axis;
  }
  if (!fits)
    throw Error(std::string(op) + ": " + what + " has shape " + shape_of(view) + ", not " +
                shape_of(shape));
  for (const DType dtype : dtypes)
    if (view.dtype() == dtype) return;
  std::string allowed;
  for (const DType dtype : dtypes)
    allowed += (allowed.empty() ? "" : ", ") + std::string(name(dtype));
  throw Error(std::string(op) + ": " + what + " is " + name(view.dtype()) + ", not " + allowed);
}

/// mismatch() says what is wrong; it is called only then, because the token loop allocates nothing.
template <class Mismatch>
void check(bool ok, const char* op, const Mismatch& mismatch) {
  if (!ok) throw Error(std::string(op) + ": " + mismatch());
}

inline constexpr auto kF32 = {DType::kF32};
inline constexpr auto kFloats = {DType::kF32, DType::kBF16, DType::kF16};

}  // namespace canopy
