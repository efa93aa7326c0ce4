#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/formats/dtype.h"
#include "src/base/formats/packed_format.h"

namespace canopy {

/// Non-owning view of a matrix of weights in one of the formats of src/base/formats/weight_format.h
/// or src/base/formats/packed_format.h, in a device's memory or the host's: rows one behind
/// another, of whole blocks or packed. Its bytes do not follow from the shape, so that it is no
/// TensorView. Copying a view copies the pointers. The memory must outlive all work queued on it.
class WeightView {
 public:
  WeightView() = default;  // empty: there is no such matrix
  /// Throws Error if `format` is not one of weights, or is packed, an extent is negative, there are
  /// no columns, they are not whole blocks, or the size overflows.
  WeightView(const std::byte* payload, DType format, std::int64_t rows, std::int64_t columns);
  /// A packed matrix, its offsets in the same memory as its payload of so many bytes. Throws Error
  /// as above, or if `format` is not packed.
  WeightView(std::span<const std::byte> payload, const RowOffset* row_offsets, DType format,
             std::int64_t rows, std::int64_t columns);

  DType format() const { return format_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  const std::byte* payload() const { return payload_; }
  const RowOffset* row_offsets() const { return row_offsets_; }  // null unless packed
  bool empty() const { return columns_ == 0; }                   // zero rows are not empty
  std::size_t bytes() const { return bytes_; }

  /// A row of a matrix that the host can read: of a packed one, the offsets too.
  StoredRow row(std::int64_t i) const;
  /// Rows [first, first + count): one extent of the same memory. Throws Error if out of range, or
  /// for a packed matrix, whose offsets may not be the host's to read.
  WeightView slice(std::int64_t first, std::int64_t count) const;

 private:
  const std::byte* payload_ = nullptr;
  const RowOffset* row_offsets_ = nullptr;
  std::size_t bytes_ = 0;
  std::int64_t rows_ = 0, columns_ = 0;
  DType format_ = DType::kF32;
};

}  // namespace canopy
