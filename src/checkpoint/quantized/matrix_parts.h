#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// A matrix as the files of a 4-bit or 8-bit directory have it: codes, scales and zero points in
/// tensors of their own, in an order that is none of rows. A weight is (code - zero point) x scale.
struct MatrixParts {
  /// Codes of the first three are 32-bit words of 32 / bits fields, lowest bits first.
  enum class Layout : std::uint8_t {
    /// codes [columns, rows / 8]; scales [groups, rows]; zeros [groups, rows / 8]. Fields are rows,
    /// in the order 0 2 4 6 1 3 5 7.
    kAwq,
    /// codes [columns / fields, rows]; scales [groups, rows]; zeros [groups, rows / fields].
    kGptq,
    /// codes [rows, columns / fields], rounded up; scales [rows, groups], [rows, 1] or [1]; zeros
    /// [rows / fields, groups].
    kCompressed,
    /// codes I8 [rows, columns]; scales as above; zeros I8 of the scales' shape. To codes and zeros
    /// 128 is added.
    kBytes,
    /// codes U8 [.., rows, columns / 32, 16] of E2M1, the first of two columns in the lower half;
    /// scales U8 [.., rows, columns / 32], 2^(byte - 127); no zeros.
    kMxfp4,
    /// codes U8 [rows, columns / 2] of E2M1, in the same order; scales E4M3 [rows, columns / 16],
    /// times `factor`, or over it where that is negative; no zeros.
    kNvfp4,
    /// codes U8 [rows x columns / 2, 1], numbers of a table, the first of two columns in the higher
    /// half; scales F32 [rows x columns / group], or U8, as `doubled` has them; no zeros.
    kTable,
    /// codes [rows, columns] are the values, of a plain format; no scales, no zeros.
    kPlain
  };
  Layout layout;
  int bits;
  std::int64_t rows, columns;  // of all that the parts hold
  std::int64_t group;          // columns that share a scale
  int zero_added;              // to each zero point, as GPTQ's first version stores them less 1
  TensorEntry codes, scales;
  std::optional<TensorEntry> zeros;  // without: 2^(bits - 1)
  float factor = 1;                  // of kNvfp4
  /// Scales of kTable that are bytes: values[byte] times one of `scales` F32 for `group` of them,
  /// rounded, plus `offset`.
  struct Doubled {
    TensorEntry scales;
    std::array<float, 256> values;
    std::int64_t group;
    float offset;
  };
  std::shared_ptr<const Doubled> doubled = {};
  /// Row i of the TensorEntry that has this, which may be a part, is row first_row + row_step i.
  /// Its rows may be several of kPlain, one after the other.
  std::int64_t first_row = 0, row_step = 1;
};

}  // namespace canopy
