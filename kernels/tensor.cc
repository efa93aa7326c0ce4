#include "kernels/tensor.h"

#include <string>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

namespace {

std::size_t checked_product(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error("a tensor's size overflows 64 bits: " + std::to_string(a) + " x " +
                std::to_string(b) + " bytes");
  return product;
}

}  // namespace

template <class Byte>
BasicView<Byte>::BasicView(Byte* data, DType dtype, std::initializer_list<std::int64_t> shape)
    : data_(data), rank_(static_cast<int>(shape.size())), dtype_(dtype) {
  if (in_blocks(dtype))
    throw Error(std::string("elements of ") + name(dtype) +
                " do not stand alone; a matrix of them is a WeightView");
  if (shape.size() < 1 || shape.size() > shape_.size())
    throw Error("a view has rank 1 to 4, not " + std::to_string(shape.size()));
  std::size_t axis = 0;
  for (const std::int64_t extent : shape) {
    if (extent < 0)
      throw Error("axis " + std::to_string(axis) + " of a view has negative extent " +
                  std::to_string(extent));
    shape_[axis++] = extent;
  }
  bytes();  // throws if the product overflows
}

template <class Byte>
std::size_t BasicView<Byte>::bytes() const {
  if (rank_ == 0) return 0;
  std::size_t total = row_bytes(dtype_, dim(rank_ - 1));
  for (int axis = 0; axis + 1 < rank_; ++axis)
    total = checked_product(total, static_cast<std::size_t>(dim(axis)));
  return total;
}

template <class Byte>
BasicView<Byte> BasicView<Byte>::rows(std::int64_t first, std::int64_t count) const {
  if (rank_ == 0 || first < 0 || count < 0 || first > dim(0) || count > dim(0) - first)
    throw Error("rows [" + std::to_string(first) + ", + " + std::to_string(count) +
                ") are outside a view of " + std::to_string(rank_ == 0 ? 0 : dim(0)) + " rows");
  BasicView part = *this;
  if (dim(0) > 0)
    part.data_ += bytes() / static_cast<std::size_t>(dim(0)) * static_cast<std::size_t>(first);
  part.shape_[0] = count;
  return part;
}

template class BasicView<std::byte>;
template class BasicView<const std::byte>;

}  // namespace canopy
