#include "kernels/weight_view.h"

#include <string>

#include "src/base/error.h"
#include "src/base/weight_format.h"

namespace canopy {

namespace {

std::string shape_of(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

}  // namespace

WeightView::WeightView(const std::byte* payload, DType format, std::int64_t rows,
                       std::int64_t columns)
    : payload_(payload), rows_(rows), columns_(columns), format_(format) {
  if (find_format(format) == nullptr)
    throw Error(std::string("a matrix of weights is ") + name(format) + ", which is none of " +
                names_of(WeightFormats()));
  if (rows < 0 || columns < 1)
    throw Error("a matrix of weights has no shape " + shape_of(rows, columns));
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(row_bytes(format, columns), static_cast<std::size_t>(rows), &bytes))
    throw Error("the size of a matrix of " + shape_of(rows, columns) + " overflows 64 bits");
}

std::size_t WeightView::bytes() const {
  return row_bytes(format_, columns_) * static_cast<std::size_t>(rows_);
}

WeightView WeightView::slice(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first > rows_ || count > rows_ - first)
    throw Error("rows [" + std::to_string(first) + ", + " + std::to_string(count) +
                ") are outside a matrix of " + std::to_string(rows_) + " rows");
  WeightView part = *this;
  part.payload_ += row_bytes(format_, columns_) * static_cast<std::size_t>(first);
  part.rows_ = count;
  return part;
}

}  // namespace canopy
