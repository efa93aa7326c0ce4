// Tensors as files hold them, and parts of them.
#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/quantized/matrix_parts.h"
#include "src/checkpoint/readers.h"

namespace canopy {

std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis)
    text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

std::uint64_t tensor_bytes(DType dtype, const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = row_bytes(dtype, shape.empty() ? 1 : shape.back());
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    if (shape[axis] < 0 ||
        __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(shape[axis]), &bytes))
      throw Error("shape " + to_string(shape) + " overflows");
  }
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    throw Error("shape " + to_string(shape) + " overflows");
  return bytes;
}

std::uint64_t tensor_bytes(const TensorEntry& tensor) {
  const Companion& companion = tensor.companion;
  if (companion.empty()) return tensor_bytes(tensor.dtype, tensor.shape);
  const std::vector<std::int64_t> shape{companion.rows(), companion.columns()};
  if (companion.format()->dtype != tensor.dtype || shape != tensor.shape)
    throw Error("it has the shape " + to_string(tensor.shape) + ", and apart from its rows what " +
                companion.format()->name + " " + to_string(shape) + " has");
  return companion.place_of_rows(0, companion.rows()).bytes;
}

ByteRange place_of_rows(const TensorEntry& matrix, std::int64_t first, std::int64_t rows) {
  if (!matrix.companion.empty()) return matrix.companion.place_of_rows(first, rows);
  const std::uint64_t row = row_bytes(matrix.dtype, matrix.shape[1]);
  return {static_cast<std::uint64_t>(first) * row, static_cast<std::uint64_t>(rows) * row};
}

TensorEntry rows_of(const TensorEntry& matrix, std::int64_t first, std::int64_t rows) {
  const ByteRange place = place_of_rows(matrix, first, rows);
  TensorEntry part = matrix;
  part.shape[0] = rows;
  part.checksum.reset();
  part.scales.clear();
  if (part.parts) {
    auto parts = std::make_shared<MatrixParts>(*part.parts);
    parts->first_row += parts->row_step * first * (matrix.shape[1] / parts->columns);
    part.parts = std::move(parts);
  } else {
    part.offset += place.offset;
  }
  part.bytes = place.bytes;
  if (!part.companion.empty()) part.companion = matrix.companion.slice(first, rows);
  return part;
}

TensorEntry rows_of_turn(const TensorEntry& matrix, std::int64_t turn, std::int64_t turns) {
  require(matrix.parts != nullptr && matrix.shape[0] % turns == 0, "rows take turns");
  TensorEntry own = matrix;
  own.shape[0] /= turns;
  own.bytes /= static_cast<std::uint64_t>(turns);
  auto parts = std::make_shared<MatrixParts>(*matrix.parts);
  parts->first_row += parts->row_step * turn;
  parts->row_step *= turns;
  own.parts = std::move(parts);
  return own;
}

TensorEntry values_of_turn(const TensorEntry& tensor, std::int64_t turn, std::int64_t turns) {
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  TensorEntry values = tensor;
  values.shape = {rows * columns, 1};
  values.parts =
      std::make_shared<const MatrixParts>(MatrixParts{.layout = MatrixParts::Layout::kPlain,
                                                      .bits = 0,
                                                      .rows = rows * columns,
                                                      .columns = 1,
                                                      .group = 1,
                                                      .zero_added = 0,
                                                      .codes = tensor,
                                                      .scales = {},
                                                      .zeros = {}});
  values = rows_of_turn(values, turn, turns);
  values.shape = {rows, columns / turns};
  return values;
}

ByteRange place_in_file(const TensorEntry& tensor) {
  if (!tensor.parts) return {tensor.offset, tensor.bytes};
  const MatrixParts& m = *tensor.parts;
  using enum MatrixParts::Layout;
  if (m.layout != kMxfp4 && m.layout != kNvfp4 && m.layout != kTable && m.layout != kPlain)
    return {tensor.offset, m.codes.bytes};
  const std::uint64_t row = m.codes.bytes / static_cast<std::uint64_t>(m.rows);
  const std::int64_t rows = tensor.shape[0] * (tensor.shape[1] / m.columns);
  return {m.codes.offset + static_cast<std::uint64_t>(m.first_row) * row,
          static_cast<std::uint64_t>((rows - 1) * m.row_step + 1) * row};
}

std::int64_t slice_unit(const TensorEntry& matrix) {
  return matrix.companion.empty() ? 1 : matrix.companion.format()->slice_unit;
}

StoredRow row_at(const std::byte* data, const TensorEntry& matrix, std::int64_t i) {
  if (!matrix.companion.empty()) return matrix.companion.row(data, i);
  return {data, row_bytes(matrix.dtype, matrix.shape[1]), matrix.shape[1]};
}

const char* dtype_name(const TensorEntry& tensor) {
  return tensor.companion.empty() ? name(tensor.dtype) : tensor.companion.format()->name;
}

std::size_t longest_row(const TensorEntry& matrix) {
  if (matrix.companion.empty()) return row_bytes(matrix.dtype, matrix.shape[1]);
  std::uint64_t longest = 0;
  for (std::int64_t row = 0; row < matrix.shape[0]; ++row)
    longest = std::max(longest, matrix.companion.place_of_rows(row, 1).bytes);
  return static_cast<std::size_t>(longest);
}

void require_known_dtype(const TensorEntry& tensor) {
  if (tensor.foreign_dtype)
    throw Error("tensor " + in_quotes(tensor.name) + " has dtype " +
                in_quotes(*tensor.foreign_dtype) +
                ", which is not supported; safetensors weights may be BF16, F16 or F32, or F8_E4M3 "
                "with scales: take the model in one of these, or as a GGUF file");
}

void require_disjoint(std::vector<TensorEntry>& tensors) {
  std::set<std::string_view> names;
  for (const TensorEntry& tensor : tensors)
    if (!names.insert(tensor.name).second)
      throw Error("tensor " + in_quotes(tensor.name) + " is given twice");
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.file, a.offset, a.bytes) < std::tie(b.file, b.offset, b.bytes);
  });
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const TensorEntry &before = tensors[i - 1], &tensor = tensors[i];
    if (tensor.file == before.file && tensor.offset < before.offset + before.bytes)
      throw Error("tensors " + in_quotes(before.name) + " and " + in_quotes(tensor.name) +
                  " overlap at byte " + std::to_string(tensor.offset));
  }
}

}  // namespace canopy
