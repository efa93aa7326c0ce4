#include "kernels/tensor.h"

#include <string>

#include "src/base/error.h"

namespace canopy {

namespace {

struct Format {
  const char* name;
  std::size_t block_bytes;
  std::int64_t block_columns;
};

Format format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {"F32", 4, 1};
    case DType::kF16:
      return {"F16", 2, 1};
    case DType::kBF16:
      return {"BF16", 2, 1};
    case DType::kI32:
      return {"I32", 4, 1};
    case DType::kU64:
      return {"U64", 8, 1};
    case DType::kQ4_0:
      return {"Q4_0", 18, 32};
    case DType::kQ4_1:
      return {"Q4_1", 20, 32};
    case DType::kQ8_0:
      return {"Q8_0", 34, 32};
    case DType::kQ4_K:
      return {"Q4_K", 144, 256};
    case DType::kQ6_K:
      return {"Q6_K", 210, 256};
  }
  throw Error("unknown dtype " + std::to_string(static_cast<int>(dtype)));
}

std::size_t checked_product(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    throw Error("a tensor's size overflows 64 bits: " + std::to_string(a) + " x " +
                std::to_string(b) + " bytes");
  return product;
}

}  // namespace

const char* name(DType dtype) { return format(dtype).name; }

std::size_t row_bytes(DType dtype, std::int64_t columns) {
  const Format f = format(dtype);
  if (columns < 0 || columns % f.block_columns != 0)
    throw Error("a row of " + std::to_string(columns) + " columns is not whole blocks of " +
                std::to_string(f.block_columns) + " (" + f.name + ")");
  return checked_product(static_cast<std::size_t>(columns / f.block_columns), f.block_bytes);
}

template <class Byte>
BasicView<Byte>::BasicView(Byte* data, DType dtype, std::initializer_list<std::int64_t> shape)
    : data_(data), rank_(static_cast<int>(shape.size())), dtype_(dtype) {
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
  if (rank_ == 1) {
    part.data_ += row_bytes(dtype_, first);
  } else if (dim(0) > 0) {
    part.data_ += bytes() / static_cast<std::size_t>(dim(0)) * static_cast<std::size_t>(first);
  }
  part.shape_[0] = count;
  part.bytes();  // of rank 1, count must be whole blocks
  return part;
}

template class BasicView<std::byte>;
template class BasicView<const std::byte>;

}  // namespace canopy
