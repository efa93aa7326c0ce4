#pragma once
// Some formats keep data apart from the rows of a matrix: where each row begins, or a scale for
// each block of rows and columns. These data are the matrix's companion. It is checked when a model
// is opened, stays in memory as long as the model is open, and is cut as the rows are.
//
// The struct of such a format has, besides kDType and kName:
//   kSliceUnit, at multiples of which rows the matrix may be cut: 1, or the rows of a block;
//   companion_bytes(rows, columns). The companion of rows [first, first + n) of a matrix has
//     companion_bytes(n, columns) bytes, and begins companion_bytes(first, columns) -
//     companion_bytes(0, columns) bytes after the matrix's own;
//   place_of_row(companion, columns, i), a RowPlace; rows follow one another without gaps;
//   fixed_bytes(columns), what a row takes at least;
//   check_companion(companion, rows, columns), which throws Error where the data make no sense.
// A packed format (packed_format.h) has decode_group(); any other has decode(row, k), weight k of a
// StoredRow. A format without a companion has none of these, and its matrices have one null pointer
// more.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/base/formats/weight_format.h"

namespace canopy {

/// One row of a matrix: its bytes, at any address on the host, and how many weights they hold. In a
/// GPU's memory packed rows lie at multiples of kPackedAlignment.
struct StoredRow {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::int64_t columns = 0;
  const std::byte* companion = nullptr;  // the part of the companion that decodes it, if any
};

/// The place of a row in a matrix with a companion.
struct RowPlace {
  std::size_t offset = 0, bytes = 0;     // from the matrix's first byte on
  const std::byte* companion = nullptr;  // StoredRow::companion
};

/// Consecutive bytes, counted from a matrix's first.
struct ByteRange {
  std::uint64_t offset = 0, bytes = 0;
};

template <class Format>
inline constexpr bool kHasCompanion = requires {
  Format::kSliceUnit;
};

/// Row i of a matrix. companion: null where the format has none.
template <class Format>
CANOPY_HOST_DEVICE inline StoredRow stored_row(const std::byte* payload, const std::byte* companion,
                                               std::int64_t columns, std::int64_t i) {
  if constexpr (kHasCompanion<Format>) {
    const RowPlace at = Format::place_of_row(companion, columns, i);
    return {payload + at.offset, at.bytes, columns, at.companion};
  } else {
    const std::int64_t bytes = bytes_of_row<Format>(columns);
    return {payload + i * bytes, static_cast<std::size_t>(bytes), columns, nullptr};
  }
}
/// Element k of a row that is not packed.
template <class Format>
CANOPY_HOST_DEVICE inline float weight_at(const StoredRow& row, std::int64_t k) {
  if constexpr (kHasCompanion<Format>)
    return Format::decode(row, k);
  else
    return weight_at<Format>(row.data, k);
}

/// A format with a companion, as data.
struct CompanionFormat {
  DType dtype;
  const char* name;
  std::int64_t slice_unit;
  std::size_t (*bytes)(std::int64_t rows, std::int64_t columns);
  RowPlace (*place_of_row)(const std::byte* companion, std::int64_t columns, std::int64_t row);
  void (*check)(std::span<const std::byte> companion, std::int64_t rows, std::int64_t columns);
};
template <class Format>
inline constexpr CompanionFormat kCompanionOf{Format::kDType,       Format::kName,
                                              Format::kSliceUnit,   Format::companion_bytes,
                                              Format::place_of_row, Format::check_companion};

/// A companion in some memory, that of its matrix.
struct CompanionView {
  const CompanionFormat* format = nullptr;  // null: the matrix has none
  const std::byte* data = nullptr;
};

/// A matrix's companion in the host's memory, checked. Copies and slices share the bytes.
class Companion {
 public:
  Companion() = default;  // of a matrix that has none
  /// Throws Error if the bytes are not those of such a matrix, if its rows do not fill
  /// `payload_bytes`, or if the format's companions are not small: above a five-hundredth of
  /// the weights they would have to travel with them, which is not supported.
  Companion(const CompanionFormat& format, std::vector<std::byte> bytes, std::int64_t rows,
            std::int64_t columns, std::uint64_t payload_bytes);

  bool empty() const { return format_ == nullptr; }
  const CompanionFormat* format() const { return format_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::span<const std::byte> bytes() const;
  CompanionView view() const { return {format_, data_.get()}; }

  /// Returns where rows [first, first + count) lie in the matrix; any rows of it. Throws Error if
  /// out of range.
  ByteRange place_of_rows(std::int64_t first, std::int64_t count) const;
  /// Returns the companion of these rows alone. Throws Error if out of range, or if `first` is no
  /// multiple of the format's slice_unit.
  Companion slice(std::int64_t first, std::int64_t count) const;
  /// Returns row i, whose bytes lie at `data`.
  StoredRow row(const std::byte* data, std::int64_t i) const;

 private:
  void check_range(std::int64_t first, std::int64_t count) const;
  std::uint64_t end_of(std::int64_t rows) const;

  const CompanionFormat* format_ = nullptr;
  std::shared_ptr<const std::byte> data_;
  std::int64_t rows_ = 0, columns_ = 0;
};

}  // namespace canopy
