#include "src/engine/loaded_heads.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "offload/unit_layout.h"
#include "src/base/error.h"
#include "src/base/formats/weight_format.h"

namespace canopy {

namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

std::size_t bias_bytes(const TensorEntry& bias) {
  return aligned(row_bytes(DType::kF32, bias.shape[0]));
}

/// The matrix that heads without one of their own share: the columns of the model's head that
/// belong to what they read.
TensorEntry shared_matrix(const MedusaHeads& heads, const Checkpoint& model) {
  TensorEntry matrix = own_head(model);
  if (matrix.shape[1] == heads.dim) return matrix;
  matrix.shape[1] = heads.dim;
  matrix.bytes = tensor_bytes(matrix.dtype, matrix.shape);
  return matrix;
}

std::uint64_t bytes_needed(const MedusaHeads& heads, const Checkpoint& model) {
  std::uint64_t bytes = 0;
  for (const MedusaHeads::Head& head : heads.heads) {
    for (const MedusaHeads::Block& block : head.blocks)
      bytes += device_bytes(block.weight) + (block.bias ? bias_bytes(*block.bias) : 0);
    if (head.matrix) bytes += device_bytes(*head.matrix);
  }
  return bytes + (heads.heads.front().matrix ? 0 : device_bytes(shared_matrix(heads, model)));
}

/// Puts one tensor behind the other into memory of the device.
class Loader {
 public:
  Loader(Device& device, std::byte* to) : device_(device), to_(to) {}

  WeightView matrix(const std::filesystem::path& file, const TensorEntry& tensor) {
    std::byte* const begin = to_;
    for (std::uint64_t done = 0; done < tensor.bytes; done += kPiece) {
      const std::uint64_t count = std::min(kPiece, tensor.bytes - done);
      send(begin + done, read(file, tensor.offset + done, count));
    }
    upload_companion(device_, *stream_, begin, tensor);
    stream_->synchronize();
    to_ += device_bytes(tensor);
    return matrix_on_device(begin, tensor);
  }
  /// `part` of a matrix that is not packed: the first columns of its rows, which lie `stride` bytes
  /// apart in the file.
  WeightView columns(const std::filesystem::path& file, const TensorEntry& part,
                     std::size_t stride) {
    std::byte* const begin = to_;
    const std::size_t row = row_bytes(part.dtype, part.shape[1]);
    const auto rows = static_cast<std::size_t>(part.shape[0]),
               most = std::max(kPiece / stride, std::size_t{1});
    std::vector<std::byte> cut;
    for (std::size_t done = 0; done < rows; done += most) {
      const std::size_t count = std::min(most, rows - done);
      const std::vector<std::byte> whole = read(file, part.offset + done * stride, count * stride);
      cut.resize(count * row);
      for (std::size_t i = 0; i < count; ++i)
        std::copy_n(whole.data() + i * stride, row, cut.data() + i * row);
      send(begin + done * row, cut);
    }
    to_ += device_bytes(part);
    return matrix_on_device(begin, part);
  }
  ConstTensorView vector(const std::filesystem::path& file, const TensorEntry& tensor) {
    const std::vector<std::byte> stored = read(file, tensor.offset, tensor.bytes);
    std::vector<float> values(static_cast<std::size_t>(tensor.shape[0]));
    dequantize_row(tensor.dtype, stored.data(), values);
    std::byte* const begin = to_;
    device_.upload(*stream_, begin, std::as_bytes(std::span(values)));
    stream_->synchronize();
    to_ += bias_bytes(tensor);
    return {begin, DType::kF32, {tensor.shape[0]}};
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{16} << 20;

  static std::vector<std::byte> read(const std::filesystem::path& file, std::uint64_t offset,
                                     std::uint64_t count) {
    std::ifstream in(file, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(offset));
    std::vector<std::byte> bytes(count);
    if (!in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count)))
      throw Error("cannot read " + std::to_string(count) + " bytes of " + file.string());
    return bytes;
  }
  void send(std::byte* to, const std::vector<std::byte>& bytes) {
    device_.upload(*stream_, to, bytes);
    stream_->synchronize();
  }

  Device& device_;
  std::byte* to_;
  std::unique_ptr<Stream> stream_ = device_.make_stream("load");
};

}  // namespace

HeadDraft head_draft(const MedusaHeads& heads, const Checkpoint& model) {
  return {static_cast<int>(heads.heads.size()), heads.dim, bytes_needed(heads, model),
          heads.acceptance};
}

LoadedHeads load_heads(Device& device, const MedusaHeads& heads, const Checkpoint& model) {
  return in_context("loading the heads of " + heads.file.string(), [&] {
    LoadedHeads loaded{device.allocate(bytes_needed(heads, model)), {}};
    Loader loader(device, loaded.memory.data());
    for (const MedusaHeads::Head& head : heads.heads) {
      auto& blocks = loaded.weights.blocks.emplace_back();
      for (const MedusaHeads::Block& block : head.blocks) {
        const WeightView weight = loader.matrix(heads.file, block.weight);
        blocks.push_back(
            {weight, block.bias ? loader.vector(heads.file, *block.bias) : ConstTensorView()});
      }
      if (head.matrix) loaded.weights.matrices.push_back(loader.matrix(heads.file, *head.matrix));
    }
    if (loaded.weights.matrices.empty()) {
      const TensorEntry whole = own_head(model), part = shared_matrix(heads, model);
      const auto& file = model.files().at(static_cast<std::size_t>(whole.file));
      loaded.weights.matrices.push_back(
          part.shape == whole.shape
              ? loader.matrix(file, whole)
              : loader.columns(file, part, row_bytes(whole.dtype, whole.shape[1])));
    }
    return loaded;
  });
}

}  // namespace canopy
