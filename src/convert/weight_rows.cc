#include "src/convert/weight_rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "src/base/error.h"
#include "src/base/formats/packed_format.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/model_tensors.h"
#include "src/convert/rows_of_parts.h"

namespace canopy {

std::int64_t adjacent_pairs_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + within % half * 2 + within / half;
}

std::int64_t rotated_halves_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + within % 2 * half + within / 2;
}

bool is_rotated(const std::string& tensor_name) {
  return numbers_in(spec_of(TensorRole::kQuery).name, tensor_name) ||
         numbers_in(spec_of(TensorRole::kKey).name, tensor_name);
}

WeightRows::WeightRows(const Checkpoint& checkpoint)
    : checkpoint_(&checkpoint), descriptors_(checkpoint.files().size(), -1) {
  const Family* const family = find_family(known_families(), checkpoint.config().architecture);
  reorders_ = checkpoint.config().rope_adjacent_pairs && !(family && family->adjacent_pairs);
  require(!(reorders_ && checkpoint.config().any_layer(&LayerConfig::qkv_bias)),
          "biases of Q and K in the order of adjacent pairs are not supported");
}

WeightRows::~WeightRows() {
  for (const int descriptor : descriptors_)
    if (descriptor >= 0) close(descriptor);
}

std::int64_t WeightRows::rows(const TensorEntry& tensor) {
  return tensor.shape.size() <= 1 ? 1 : tensor.shape.at(0);
}

std::int64_t WeightRows::columns(const TensorEntry& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape.back();
}

bool WeightRows::reordered(const TensorEntry& tensor) const {
  return reorders_ && is_rotated(tensor.name);
}

void WeightRows::read_at(const TensorEntry& tensor, std::uint64_t offset,
                         std::span<std::byte> into) {
  const auto file = static_cast<std::size_t>(tensor.file);
  const std::string& path = checkpoint_->files().at(file).native();
  int& descriptor = descriptors_[file];
  if (descriptor < 0) descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw Error("cannot open " + path + ": " + std::strerror(errno));
  for (std::size_t done = 0; done < into.size();) {
    const ssize_t got = pread(descriptor, into.data() + done, into.size() - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error("cannot read " + path + " at byte " + std::to_string(offset + done) + ": " +
                  (got < 0 ? std::strerror(errno) : "it ends there"));
    done += static_cast<std::size_t>(got);
  }
}

std::span<const std::byte> WeightRows::read_stored(const TensorEntry& tensor, std::int64_t row) {
  read_stored(tensor, row, 1, bytes_);
  return bytes_;
}

void WeightRows::read_stored(const TensorEntry& tensor, std::int64_t first, std::int64_t count,
                             std::vector<std::byte>& into) {
  if (tensor.shape.size() <= 1) {
    into.resize(tensor.bytes);
    return read_at(tensor, tensor.offset, into);
  }
  if (tensor.parts)
    return make_rows_of_parts(
        tensor, first, count,
        [&](const TensorEntry& part, std::uint64_t offset, std::span<std::byte> bytes) {
          read_at(part, offset, bytes);
        },
        into);
  const ByteRange rows = place_of_rows(tensor, first, count);
  into.resize(rows.bytes);
  if (!reordered(tensor)) return read_at(tensor, tensor.offset + rows.offset, into);
  const std::size_t row = row_bytes(tensor.dtype, columns(tensor));
  const int layer = std::max(0, find_tensor(tensor.name)->layer);  // reordered() knows the name
  const int head_dim = checkpoint_->config().sizes(layer).head_dim;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t stored = adjacent_pairs_row(first + i, head_dim);
    read_at(tensor, tensor.offset + static_cast<std::uint64_t>(stored) * row,
            std::span(into).subspan(static_cast<std::size_t>(i) * row, row));
  }
}

void WeightRows::read(const TensorEntry& tensor, std::int64_t row, std::span<float> out) {
  const std::span<const std::byte> stored = read_stored(tensor, row);
  if (tensor.shape.size() <= 1)
    dequantize_row(tensor.dtype, stored.data(), out);
  else
    row_as_f32(tensor.dtype, row_at(stored.data(), tensor, row), out);
  for (const float factor : tensor.factors)
    for (float& value : out) value *= factor;
  if (tensor.plus != 0)
    for (float& value : out) value += tensor.plus;
  for (const float value : out)
    if (!std::isfinite(value))
      throw Error(checkpoint_->root().string() + ": tensor " + tensor.name + ", row " +
                  std::to_string(row) + " holds a value that is not finite");
}

}  // namespace canopy
