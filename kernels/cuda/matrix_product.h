#pragma once
#include <cstddef>
#include <cstdint>

#include "src/base/formats/dtype.h"

namespace canopy::cuda {

/// Product that is left for the matrix units: y[i, j] = or += factor times the dot product of rows
/// i of x and j of w. Shapes: x [n, k] of w's dtype, w [m, k] F32, BF16 or F16, y [n, stride] f32.
/// Sums in f32.
struct MatrixProduct {
  const std::byte *x, *w;
  DType dtype;
  std::int64_t n, m, k;
  float* y;  // its first column
  std::int64_t stride;
  bool accumulate = false;
  float factor = 1.0f;
  bool by_columns = false;  // w is [k, m]: columns take the place of its rows
  /// Number of products at once, each of whose x, w and y follows that of the one before.
  std::int64_t count = 1;
};

}  // namespace canopy::cuda
