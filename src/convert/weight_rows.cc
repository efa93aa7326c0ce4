#include "src/convert/weight_rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "src/base/error.h"
#include "src/base/weight_format.h"
#include "src/checkpoint/model_tensors.h"

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
  return number_in(spec_of(TensorRole::kQuery).name, tensor_name) ||
         number_in(spec_of(TensorRole::kKey).name, tensor_name);
}

WeightRows::WeightRows(const Checkpoint& checkpoint)
    : checkpoint_(&checkpoint), descriptors_(checkpoint.files().size(), -1) {
  require(!(checkpoint.config().rope_adjacent_pairs &&
            checkpoint.config().any_layer(&LayerConfig::qkv_bias)),
          "biases of Q and K in the order of adjacent pairs are not supported");
}

WeightRows::~WeightRows() {
  for (const int descriptor : descriptors_)
    if (descriptor >= 0) close(descriptor);
}

std::int64_t WeightRows::rows(const TensorEntry& tensor) {
  return tensor.shape.size() == 1 ? 1 : tensor.shape.at(0);
}

std::int64_t WeightRows::columns(const TensorEntry& tensor) { return tensor.shape.back(); }

std::int64_t WeightRows::stored_row(const TensorEntry& tensor, std::int64_t row) const {
  const ModelConfig& config = checkpoint_->config();
  return config.rope_adjacent_pairs && is_rotated(tensor.name)
             ? adjacent_pairs_row(row, config.head_dim)
             : row;
}

std::span<const std::byte> WeightRows::read_stored(const TensorEntry& tensor, std::int64_t row) {
  const auto file = static_cast<std::size_t>(tensor.file);
  const std::string& path = checkpoint_->files().at(file).native();
  int& descriptor = descriptors_[file];
  if (descriptor < 0) descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw Error("cannot open " + path + ": " + std::strerror(errno));
  bytes_.resize(row_bytes(tensor.dtype, columns(tensor)));
  const std::uint64_t offset =
      tensor.offset + static_cast<std::uint64_t>(stored_row(tensor, row)) * bytes_.size();
  for (std::size_t done = 0; done < bytes_.size();) {
    const ssize_t got = pread(descriptor, bytes_.data() + done, bytes_.size() - done,
                              static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw Error("cannot read " + path + " at byte " + std::to_string(offset + done) + ": " +
                  (got < 0 ? std::strerror(errno) : "it ends there"));
    done += static_cast<std::size_t>(got);
  }
  return bytes_;
}

void WeightRows::read(const TensorEntry& tensor, std::int64_t row, std::span<float> out) {
  dequantize_row(tensor.dtype, read_stored(tensor, row).data(), out);
  for (const float value : out)
    if (!std::isfinite(value))
      throw Error(checkpoint_->root().string() + ": tensor " + tensor.name + ", row " +
                  std::to_string(row) + " holds a value that is not finite");
}

}  // namespace canopy
