#include "src/convert/rows_of_parts.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/base/formats/grouped_format.h"
#include "src/base/formats/weight_format.h"
#include "src/base/utf8.h"

namespace canopy {

namespace {

using Layout = MatrixParts::Layout;

/// Rows and columns of a tensor, which may be a vector or a scalar, read into memory.
class Part {
 public:
  Part(const TensorEntry& tensor, std::size_t element, std::int64_t row, std::int64_t rows,
       std::int64_t column, std::int64_t columns, const ReadAt& read_at)
      : row_(row), column_(column), columns_(columns) {
    const std::int64_t all = tensor.shape.back();
    const auto bytes_of = [&](std::int64_t elements) {
      return static_cast<std::size_t>(elements) * element;
    };
    bytes_.resize(bytes_of(rows * columns));
    const bool whole = columns == all;
    if (whole) read_at(tensor, tensor.offset + bytes_of(row * all), bytes_);
    for (std::int64_t i = 0; i < rows && !whole; ++i)
      read_at(tensor, tensor.offset + bytes_of((row + i) * all + column),
              std::span(bytes_).subspan(bytes_of(i * columns), bytes_of(columns)));
  }

  /// The element at a row and a column of the tensor.
  template <class Element>
  Element at(std::int64_t row, std::int64_t column) const {
    Element value;
    std::memcpy(&value, &bytes_[index(row, column) * sizeof value], sizeof value);
    return value;
  }
  /// Field `field` of a word.
  std::uint32_t field(std::int64_t row, std::int64_t column, std::int64_t field, int bits) const {
    return at<std::uint32_t>(row, column) >> field * bits & ((1u << bits) - 1);
  }

 private:
  std::size_t index(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>((row - row_) * columns_ + column - column_);
  }
  std::int64_t row_, column_, columns_;
  std::vector<std::byte> bytes_;
};

/// Rows [first, first + count) of the whole matrix.
struct Range {
  std::int64_t first, count;
};

/// True if a part of groups, which lies by rows, has one row for all.
bool is_for_all(const TensorEntry& tensor) {
  return tensor.shape.size() == 1 || tensor.shape[0] == 1;
}
Part read_groups(const TensorEntry& tensor, std::size_t element, Range rows,
                 const ReadAt& read_at) {
  if (is_for_all(tensor)) rows = {0, 1};
  return Part(tensor, element, rows.first, rows.count, 0, tensor.shape.back(), read_at);
}

Part read_words(const MatrixParts& m, const TensorEntry& tensor, Range rows, bool codes,
                const ReadAt& read_at) {
  const std::int64_t fields = 32 / m.bits;
  const std::int64_t word = rows.first / fields,
                     words = (rows.first + rows.count - 1) / fields - word + 1;
  const std::int64_t height = tensor.shape[0], width = tensor.shape[1];
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  if (m.layout == Layout::kCompressed)
    return codes ? Part(tensor, kWord, rows.first, rows.count, 0, width, read_at)
                 : Part(tensor, kWord, word, words, 0, width, read_at);
  if (m.layout == Layout::kGptq && codes)
    return Part(tensor, kWord, 0, height, rows.first, rows.count, read_at);
  return Part(tensor, kWord, 0, height, word, words, read_at);
}

Part read_scales(const MatrixParts& m, Range rows, const ReadAt& read_at) {
  const TensorEntry& tensor = m.scales;
  const std::size_t element = row_bytes(tensor.dtype, 1);
  if (m.layout == Layout::kCompressed || m.layout == Layout::kBytes)
    return read_groups(tensor, element, rows, read_at);
  return Part(tensor, element, 0, tensor.shape[0], rows.first, rows.count, read_at);
}

/// The field of its word in which AWQ has row r.
std::int64_t awq_field(std::int64_t r) { return r % 2 * 4 + r % 8 / 2; }

class Maker {
 public:
  Maker(const MatrixParts& m, Range rows, const ReadAt& read_at)
      : m_(m),
        codes_(m.layout == Layout::kBytes
                   ? Part(m.codes, 1, rows.first, rows.count, 0, m.columns, read_at)
                   : read_words(m, m.codes, rows, true, read_at)),
        scales_(read_scales(m, rows, read_at)) {
    if (!m.zeros) return;
    zeros_.emplace(m.layout == Layout::kBytes ? read_groups(*m.zeros, 1, rows, read_at)
                                              : read_words(m, *m.zeros, rows, false, read_at));
  }

  std::uint32_t code(std::int64_t row, std::int64_t column) const {
    const std::int64_t fields = 32 / m_.bits;
    switch (m_.layout) {
      case Layout::kAwq:
        return codes_.field(column, row / 8, awq_field(row), m_.bits);
      case Layout::kGptq:
        return codes_.field(column / fields, row, column % fields, m_.bits);
      case Layout::kBytes:
        return from_zero(codes_, row, column);
      default:
        break;
    }
    return codes_.field(row, column / fields, column % fields, m_.bits);
  }

  std::uint32_t zero(std::int64_t row, std::int64_t group) const {
    if (!zeros_) return 1u << (m_.bits - 1);
    if (m_.layout == Layout::kBytes)
      return from_zero(*zeros_, is_for_all(*m_.zeros) ? 0 : row, group);
    const std::int64_t fields = 32 / m_.bits;
    std::uint32_t zero = 0;
    if (m_.layout == Layout::kCompressed)
      zero = zeros_->field(row / fields, group, row % fields, m_.bits);
    else
      zero = zeros_->field(group, row / fields,
                           m_.layout == Layout::kAwq ? awq_field(row) : row % fields, m_.bits);
    zero += static_cast<std::uint32_t>(m_.zero_added);
    if (zero >> m_.bits != 0)
      throw Error("tensor " + in_quotes(m_.zeros->name) + " has the zero point " +
                  std::to_string(zero) + " for row " + std::to_string(row) + ", group " +
                  std::to_string(group) +
                  ", stored less 1, which some programs read as 0: take "
                  "the model in the format gptq_v2");
    return zero;
  }

  format::Scale16 scale(std::int64_t row, std::int64_t group) const {
    const TensorEntry& tensor = m_.scales;
    if (m_.layout != Layout::kCompressed && m_.layout != Layout::kBytes)
      std::swap(row, group);
    else if (is_for_all(tensor))
      row = 0;
    using enum format::ScaleType;
    format::Scale16 found;
    float value = 0;
    if (tensor.dtype == DType::kF32) {
      value = scales_.at<float>(row, group);
      found = {f16_from_f32(value), kF16};
      if (f32_from_f16(found.bits) != value) found = {bf16_from_f32(value), kBF16};
      if (std::isfinite(value) && f32_of(found) != value)
        throw Error("tensor " + in_quotes(tensor.name) + " has a scale of more than 16 bits at " +
                    to_string({row, group}) + ", which no format of rows has");
    } else {
      found = {scales_.at<std::uint16_t>(row, group), tensor.dtype == DType::kF16 ? kF16 : kBF16};
      value = f32_of(found);
    }
    if (!std::isfinite(value))
      throw Error("tensor " + in_quotes(tensor.name) + " has a scale that is not finite at " +
                  to_string({row, group}));
    return found;
  }

 private:
  /// A signed byte as codes are counted, from 0 on.
  static std::uint32_t from_zero(const Part& part, std::int64_t row, std::int64_t column) {
    return static_cast<std::uint32_t>(part.at<std::int8_t>(row, column) + 128);
  }
  static float f32_of(format::Scale16 scale) {
    return scale.type == format::ScaleType::kF16 ? f32_from_f16(scale.bits)
                                                 : f32_from_bf16(scale.bits);
  }
  const MatrixParts& m_;
  const Part codes_, scales_;
  std::optional<Part> zeros_;
};

/// Rows of one of the parts, as they lie.
std::vector<std::byte> read_rows(const TensorEntry& part, Range rows, std::int64_t all,
                                 const ReadAt& read_at) {
  const std::uint64_t row = part.bytes / static_cast<std::uint64_t>(all);
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows.count) * row);
  read_at(part, part.offset + static_cast<std::uint64_t>(rows.first) * row, bytes);
  return bytes;
}

/// Makes the blocks of `count` rows that are m.row_step apart, the first being that of the range.
void make_mxfp4(const MatrixParts& m, Range lying, std::int64_t count, const ReadAt& read_at,
                std::byte* block) {
  using F = format::MXFP4;
  constexpr std::size_t kCodes = F::kBlockBytes - F::kCodesAt;
  constexpr std::byte kNotANumber{0xff}, kLow{0x0f};
  const std::vector<std::byte> codes = read_rows(m.codes, lying, m.rows, read_at),
                               scales = read_rows(m.scales, lying, m.rows, read_at);
  const auto blocks = static_cast<std::size_t>(m.columns / F::kBlockElements);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::size_t b = 0; b < blocks; ++b, block += F::kBlockBytes) {
      const std::size_t at = static_cast<std::size_t>(i * m.row_step) * blocks + b;
      if (scales[at] == kNotANumber)
        throw Error("tensor " + in_quotes(m.scales.name) + " has a scale that is not a number at " +
                    to_string({lying.first + i * m.row_step, static_cast<std::int64_t>(b)}) +
                    ", counting the rows of all matrices");
      block[F::kScaleAt] = scales[at];
      // A byte has columns 2j and 2j + 1 there, j and j + 16 here.
      const std::byte* const pairs = &codes[at * kCodes];
      for (std::size_t j = 0; j < kCodes; ++j) {
        const auto shift = static_cast<int>(j % 2 * 4);
        const std::byte low = pairs[j / 2] >> shift & kLow,
                        high = pairs[j / 2 + kCodes / 2] >> shift & kLow;
        block[static_cast<std::size_t>(F::kCodesAt) + j] = low | high << 4;
      }
    }
}

/// The same of NVFP4, each row whole blocks of F4_256.
void make_nvfp4(const MatrixParts& m, Range lying, std::int64_t count, const ReadAt& read_at,
                std::byte* block) {
  using F = format::F4_256;
  constexpr int kScales = F::kCodesAt - F::kScalesAt;
  constexpr std::byte kSign{0x80}, kNotANumber{0x7f}, kLow{0x0f};
  const std::vector<std::byte> codes = read_rows(m.codes, lying, m.rows, read_at),
                               scales = read_rows(m.scales, lying, m.rows, read_at);
  const std::int64_t blocks = m.columns / F::kBlockElements;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t b = 0; b < blocks; ++b, block += F::kBlockBytes) {
      const auto at = static_cast<std::size_t>(i * m.row_step * blocks + b);
      std::memcpy(block + F::kFactorAt, &m.factor, sizeof m.factor);
      for (std::size_t g = 0; g < kScales; ++g) {
        const std::byte scale = scales[at * kScales + g];
        if ((scale & kNotANumber) == kNotANumber || scale > kSign)
          throw Error("tensor " + in_quotes(m.scales.name) +
                      " has a scale that is negative or not a number at " +
                      to_string({lying.first + i * m.row_step,
                                 b * kScales + static_cast<std::int64_t>(g)}));
        block[F::kScalesAt + static_cast<int>(g)] = scale & ~kSign;
      }
      const std::byte* const pairs = &codes[at * F::kBlockElements / 2];
      for (int k = 0; k < F::kBlockElements; ++k)
        block[F::kCodesAt + k / 32 * 16 + k % 16] |= (pairs[k / 2] >> k % 2 * 4 & kLow)
                                                     << k % 32 / 16 * 4;
    }
}

template <class Number>
std::vector<Number> read_numbers(const TensorEntry& part, Range range, const ReadAt& read_at) {
  std::vector<Number> numbers(static_cast<std::size_t>(range.count));
  read_at(part, part.offset + static_cast<std::uint64_t>(range.first) * sizeof(Number),
          std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

/// Scales of these groups of kTable, of which there is one after the other for all rows.
std::vector<float> read_scales_of_table(const MatrixParts& m, Range groups, const ReadAt& read_at) {
  if (!m.doubled) return read_numbers<float>(m.scales, groups, read_at);
  const MatrixParts::Doubled& doubled = *m.doubled;
  const std::int64_t first = groups.first / doubled.group;
  const Range of_groups{first, (groups.first + groups.count - 1) / doubled.group - first + 1};
  const std::vector<float> factors = read_numbers<float>(doubled.scales, of_groups, read_at);
  std::vector<float> scales;
  for (const std::uint8_t byte : read_numbers<std::uint8_t>(m.scales, groups, read_at)) {
    const std::int64_t group = groups.first + std::ssize(scales);
    const float product =
        doubled.values[byte] * factors[static_cast<std::size_t>(group / doubled.group - first)];
    scales.push_back(product + doubled.offset);
  }
  return scales;
}

/// The same of codes of a table.
void make_table(const MatrixParts& m, Range lying, std::int64_t count, const ReadAt& read_at,
                std::byte* block) {
  using F = format::NF4;  // FP4's blocks are alike in all but the table
  constexpr std::byte kLow{0x0f};
  const std::vector<std::byte> codes = read_rows(m.codes, lying, m.rows, read_at);
  const std::int64_t first = lying.first * m.columns / m.group;
  const std::int64_t last = ((lying.first + lying.count) * m.columns - 1) / m.group;
  const std::vector<float> scales = read_scales_of_table(m, {first, last - first + 1}, read_at);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t k = 0; k < m.columns; k += F::kBlockElements, block += F::kBlockBytes) {
      const std::int64_t at = i * m.row_step * m.columns + k;  // in what is read
      const std::int64_t group = (lying.first * m.columns + at) / m.group;
      const float scale = scales[static_cast<std::size_t>(group - first)];
      if (!std::isfinite(scale))
        throw Error("tensor " + in_quotes(m.scales.name) + " has a scale that is not finite at [" +
                    std::to_string(group) + "]");
      F::put_scale(block, scale);
      for (int e = 0; e < F::kBlockElements; ++e) {
        const std::byte pair = codes[static_cast<std::size_t>(at + e) / 2];
        F::put_code(block, e, std::to_integer<std::uint32_t>(e % 2 == 0 ? pair >> 4 : pair & kLow));
      }
    }
}

}  // namespace

void make_rows_of_parts(const TensorEntry& tensor, std::int64_t first, std::int64_t count,
                        const ReadAt& read_at, std::vector<std::byte>& into) {
  const MatrixParts& m = *tensor.parts;
  into.assign(place_of_rows(tensor, first, count).bytes, {});
  if (count == 0) return;
  const std::int64_t ratio = tensor.shape[1] / m.columns;
  first = m.first_row + m.row_step * first * ratio, count *= ratio;
  const Range lying{first, (count - 1) * m.row_step + 1};
  if (m.layout == Layout::kMxfp4) return make_mxfp4(m, lying, count, read_at, into.data());
  if (m.layout == Layout::kNvfp4) return make_nvfp4(m, lying, count, read_at, into.data());
  if (m.layout == Layout::kTable) return make_table(m, lying, count, read_at, into.data());
  if (m.layout == Layout::kPlain) {
    const std::vector<std::byte> rows = read_rows(m.codes, lying, m.rows, read_at);
    const auto row = into.size() / static_cast<std::size_t>(count);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      std::memcpy(&into[i * row], &rows[i * static_cast<std::size_t>(m.row_step) * row], row);
    return;
  }
  const Maker maker(m, lying, read_at);
  if (find_grouped_format(tensor.dtype) != nullptr)
    return visit_format(GroupedFormats(), tensor.dtype, [&]<class Format>(Format) {
      using Group = typename Format::Group;
      const std::int64_t groups = Format::groups(tensor.companion.bytes().data());
      std::byte* at = into.data();
      for (std::int64_t row = first; row < first + count; ++row) {
        for (std::int64_t g = 0; g < groups; ++g, at += Format::kGroupBytes) {
          Group::put_scale(at, maker.scale(row, g));
          at[Group::kZeroAt] = static_cast<std::byte>(maker.zero(row, g));
        }
        for (std::int64_t k = 0; k < m.columns; ++k)
          Group::put_code(at - Group::kCodesAt, static_cast<int>(k), maker.code(row, k));
        at += Format::fixed_bytes(m.columns);
      }
    });
  visit_format(IntegerFormats(), tensor.dtype, [&]<class Format>(Format) {
    std::byte* block = into.data();
    for (std::int64_t row = first; row < first + count; ++row)
      for (std::int64_t k = 0; k < m.columns; k += Format::kBlockElements) {
        const std::int64_t group = k / m.group;
        Format::put_scale(block, maker.scale(row, group));
        block[Format::kZeroAt] = static_cast<std::byte>(maker.zero(row, group));
        for (int i = 0; i < Format::kBlockElements; ++i)
          Format::put_code(block, i, maker.code(row, k + i));
        block += Format::kBlockBytes;
      }
  });
}

}  // namespace canopy
