#include "kernels/weight_view.h"

#include <string>

#include "src/base/error.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

namespace {

std::string shape_of(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

void check_shape(std::int64_t rows, std::int64_t columns) {
  if (rows < 0 || columns < 1)
    throw Error("a matrix of weights has no shape " + shape_of(rows, columns));
}

}  // namespace

WeightView::WeightView(const std::byte* payload, DType format, std::int64_t rows,
                       std::int64_t columns)
    : payload_(payload), rows_(rows), columns_(columns), format_(format) {
  if (find_format(format) == nullptr)
    throw Error(std::string("a matrix of weights is ") + name(format) + ", which is none of " +
                names_of(WeightFormats()));
  check_shape(rows, columns);
  if (__builtin_mul_overflow(row_bytes(format, columns), static_cast<std::size_t>(rows), &bytes_))
    throw Error("the size of a matrix of " + shape_of(rows, columns) + " overflows 64 bits");
}

WeightView::WeightView(std::span<const std::byte> payload, CompanionView companion, DType format,
                       std::int64_t rows, std::int64_t columns)
    : payload_(payload.data()),
      companion_(companion),
      bytes_(payload.size()),
      rows_(rows),
      columns_(columns),
      format_(format) {
  if (companion.format == nullptr || companion.format->dtype != format)
    throw Error("a matrix of weights has a companion that is not of its format");
  check_shape(rows, columns);
}

WeightView WeightView::times(float factor) const {
  WeightView scaled = *this;
  scaled.factor_ *= factor;
  return scaled;
}

StoredRow WeightView::row(std::int64_t i) const {
  if (companion_.format != nullptr) {
    const RowPlace at = companion_.format->place_of_row(companion_.data, columns_, i);
    return {payload_ + at.offset, at.bytes, columns_, at.companion};
  }
  const std::size_t bytes = row_bytes(format_, columns_);
  return {payload_ + static_cast<std::size_t>(i) * bytes, bytes, columns_};
}

WeightView WeightView::slice(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first > rows_ || count > rows_ - first)
    throw Error("rows [" + std::to_string(first) + ", + " + std::to_string(count) +
                ") are outside a matrix of " + std::to_string(rows_) + " rows");
  if (companion_.format != nullptr)
    throw Error(std::string("a view of ") + companion_.format->name + " is not cut by its rows");
  const std::size_t row = row_bytes(format_, columns_);
  WeightView part = *this;
  part.payload_ += row * static_cast<std::size_t>(first);
  part.bytes_ = row * static_cast<std::size_t>(count);
  part.rows_ = count;
  return part;
}

}  // namespace canopy
