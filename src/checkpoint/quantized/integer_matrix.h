#pragma once
#include <cstdint>
#include <optional>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// A matrix of whole numbers as the files of a 4-bit or 8-bit directory have it: codes, scales and
/// zero points in tensors of their own, in an order that is none of rows. A weight is
/// (code - zero point) x scale.
struct IntegerMatrix {
  /// Codes are 32-bit words of 32 / bits fields, lowest bits first.
  enum class Layout : std::uint8_t {
    /// codes [columns, rows / 8]; scales [groups, rows]; zeros [groups, rows / 8]. Fields are rows,
    /// in the order 0 2 4 6 1 3 5 7.
    kAwq,
    /// codes [columns / fields, rows]; scales [groups, rows]; zeros [groups, rows / fields].
    kGptq,
    /// codes [rows, columns / fields], rounded up; scales [rows, groups], [rows, 1] or [1]; zeros
    /// [rows / fields, groups].
    kCompressed
  };
  Layout layout;
  int bits;
  std::int64_t rows, columns;
  std::int64_t group;  // columns that share a scale
  int zero_added;      // to each zero point, as GPTQ's first version stores them less 1
  TensorEntry codes, scales;
  std::optional<TensorEntry> zeros;  // without: 2^(bits - 1)
  std::int64_t first_row = 0;        // of the TensorEntry that has this, which may be a part
};

}  // namespace canopy
