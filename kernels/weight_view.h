#pragma once
#include <cstddef>
#include <cstdint>

#include "src/base/dtype.h"

namespace canopy {

/// Non-owning view of a matrix of weights in one of the formats of src/base/weight_format.h, in a
/// device's memory or the host's: rows one behind another, each of whole blocks. Its bytes follow
/// from the format, not from the shape alone, so that it is no TensorView. Copying a view copies
/// the pointer. The memory must outlive all work queued on it.
class WeightView {
 public:
  WeightView() = default;  // empty: there is no such matrix
  /// Throws Error if `format` is not one of weights, an extent is negative, there are no columns,
  /// they are not whole blocks, or the size overflows.
  WeightView(const std::byte* payload, DType format, std::int64_t rows, std::int64_t columns);

  DType format() const { return format_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  const std::byte* payload() const { return payload_; }
  bool empty() const { return columns_ == 0; }  // zero rows are not empty
  std::size_t bytes() const;

  /// Rows [first, first + count): one extent of the same memory. Throws Error if out of range.
  WeightView slice(std::int64_t first, std::int64_t count) const;

 private:
  const std::byte* payload_ = nullptr;
  std::int64_t rows_ = 0, columns_ = 0;
  DType format_ = DType::kF32;
};

}  // namespace canopy
