#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "src/base/formats/dtype.h"

namespace canopy {

/// Non-owning, row-major, contiguous view of device (or host) memory, rank 1..4, of elements that
/// stand alone: a matrix of weights is a WeightView.
/// Copying a view copies the pointer. The buffer must outlive all work queued on it.
template <class Byte>
class BasicView {
 public:
  BasicView() = default;  // empty: rank 0
  /// Throws Error if the dtype is one of blocks, an extent is negative, or the size overflows.
  BasicView(Byte* data, DType dtype, std::initializer_list<std::int64_t> shape);
  template <class Other>
  requires(std::is_const_v<Byte>&& std::is_same_v<Other, std::remove_const_t<Byte>>)
      BasicView(const BasicView<Other>& other)
      : data_(other.data_), shape_(other.shape_), rank_(other.rank_), dtype_(other.dtype_) {}

  int rank() const { return rank_; }
  std::int64_t dim(int axis) const { return shape_[static_cast<std::size_t>(axis)]; }
  DType dtype() const { return dtype_; }
  Byte* data() const { return data_; }
  bool empty() const { return rank_ == 0; }  // nothing was passed; zero rows are not empty
  std::size_t bytes() const;

  /// Rows [first, first + count) of axis 0; shares storage. Throws Error if out of range.
  BasicView rows(std::int64_t first, std::int64_t count) const;

 private:
  template <class>
  friend class BasicView;
  Byte* data_ = nullptr;
  std::array<std::int64_t, 4> shape_{};
  int rank_ = 0;
  DType dtype_ = DType::kF32;
};

using TensorView = BasicView<std::byte>;
using ConstTensorView = BasicView<const std::byte>;

}  // namespace canopy
