#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/formats/companion.h"
#include "src/base/formats/dtype.h"

namespace canopy {

/// Non-owning view of a matrix of weights in one of the formats of src/base/formats/weight_format.h
/// or src/base/formats/packed_format.h, in a device's memory or the host's: rows one after another,
/// of whole blocks or packed, and in the same memory the companion of a format that has one. Its
/// bytes do not follow from the shape, so that it is no TensorView. Copying a view copies the
/// pointers. The memory must outlive all work queued on it.
class WeightView {
 public:
  WeightView() = default;  // empty: there is no such matrix
  /// Throws Error if `format` is not one of weights, or has a companion, an extent is negative,
  /// there are no columns, they are not whole blocks, or the size overflows.
  WeightView(const std::byte* payload, DType format, std::int64_t rows, std::int64_t columns);
  /// A matrix with a companion. Throws Error if that is of another format, and as above.
  WeightView(std::span<const std::byte> payload, CompanionView companion, DType format,
             std::int64_t rows, std::int64_t columns);

  DType format() const { return format_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  const std::byte* payload() const { return payload_; }
  const CompanionView& companion() const { return companion_; }
  /// Number that multiplies each product, before a bias is added; 1 for most matrices.
  float factor() const { return factor_; }
  WeightView times(float factor) const;
  bool empty() const { return columns_ == 0; }  // zero rows are not empty
  std::size_t bytes() const { return bytes_; }

  /// A row of a matrix that, with its companion, the host can read.
  StoredRow row(std::int64_t i) const;
  /// Rows [first, first + count): one extent of the same memory. Throws Error if out of range, or
  /// for a matrix with a companion, which may not be the host's to read.
  WeightView slice(std::int64_t first, std::int64_t count) const;

 private:
  const std::byte* payload_ = nullptr;
  CompanionView companion_;
  std::size_t bytes_ = 0;
  std::int64_t rows_ = 0, columns_ = 0;
  DType format_ = DType::kF32;
  float factor_ = 1.0f;
};

}  // namespace canopy
