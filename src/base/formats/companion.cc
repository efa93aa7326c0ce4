#include "src/base/formats/companion.h"

#include <string>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

/// Returns whether companions of the format take less than a five-hundredth of the weights of a
/// large matrix, if these take half a byte each.
bool is_small(const CompanionFormat& format) {
  constexpr std::int64_t kSide = 8192;
  return format.bytes(kSide, kSide) < static_cast<std::size_t>(kSide * kSide / 2 / 500);
}

}  // namespace

Companion::Companion(const CompanionFormat& format, std::vector<std::byte> bytes, std::int64_t rows,
                     std::int64_t columns, std::uint64_t payload_bytes)
    : format_(&format), rows_(rows), columns_(columns) {
  if (!is_small(format))
    throw Error(
        std::string("what ") + format.name +
        " keeps apart from its rows takes more than a five-hundredth of the weights, so that "
        "it would have to travel with them; that is not supported yet");
  if (rows < 0 || columns < 1)
    throw Error("a matrix of weights has no shape " + std::to_string(rows) + " x " +
                std::to_string(columns));
  if (bytes.size() != format.bytes(rows, columns))
    throw Error("beyond its rows it has " + std::to_string(bytes.size()) + " bytes, but " +
                std::to_string(rows) + " x " + std::to_string(columns) + " of " + format.name +
                " has " + std::to_string(format.bytes(rows, columns)));
  format.check(bytes, rows, columns);
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  data_ = {owner, owner->data()};
  if (end_of(rows) != payload_bytes)
    throw Error("its rows end at byte " + std::to_string(end_of(rows)) + ", but " +
                std::to_string(payload_bytes) + " bytes are stored");
}

std::span<const std::byte> Companion::bytes() const {
  if (empty()) return {};
  return {data_.get(), format_->bytes(rows_, columns_)};
}

void Companion::check_range(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first > rows_ || count > rows_ - first)
    throw Error("rows [" + std::to_string(first) + ", + " + std::to_string(count) +
                ") are outside a matrix of " + std::to_string(rows_) + " rows");
}

std::uint64_t Companion::end_of(std::int64_t rows) const {
  if (rows == 0) return 0;
  const RowPlace last = format_->place_of_row(data_.get(), columns_, rows - 1);
  return std::uint64_t{last.offset} + last.bytes;
}

ByteRange Companion::place_of_rows(std::int64_t first, std::int64_t count) const {
  check_range(first, count);
  const std::uint64_t begin = end_of(first);
  return {begin, end_of(first + count) - begin};
}

Companion Companion::slice(std::int64_t first, std::int64_t count) const {
  check_range(first, count);
  if (first % format_->slice_unit != 0)
    throw Error(std::string("a matrix of ") + format_->name + " is cut at multiples of " +
                std::to_string(format_->slice_unit) + " rows, not at row " + std::to_string(first));
  const std::size_t skipped = format_->bytes(first, columns_) - format_->bytes(0, columns_);
  Companion part = *this;
  part.data_ = {data_, data_.get() + skipped};
  part.rows_ = count;
  return part;
}

StoredRow Companion::row(const std::byte* data, std::int64_t i) const {
  check_range(i, 1);
  const RowPlace at = format_->place_of_row(data_.get(), columns_, i);
  return {data, at.bytes, columns_, at.companion};
}

}  // namespace canopy
