#include "src/engine/loaded_heads.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "offload/unit_layout.h"
#include "src/base/error.h"
#include "src/base/weight_format.h"

namespace canopy {

namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

std::size_t bias_bytes(const TensorEntry& bias) {
  return aligned(row_bytes(DType::kF32, bias.shape[0]));
}

std::uint64_t bytes_needed(const MedusaHeads& heads, const Checkpoint& model) {
  std::uint64_t bytes = 0;
  for (const MedusaHeads::Head& head : heads.heads) {
    for (const MedusaHeads::Block& block : head.blocks)
      bytes += device_bytes(block.weight) + (block.bias ? bias_bytes(*block.bias) : 0);
    if (head.matrix) bytes += device_bytes(*head.matrix);
  }
  return bytes + (heads.heads.front().matrix ? 0 : device_bytes(own_head(model)));
}

/// Puts one tensor behind the other into memory of the device.
class Loader {
 public:
  Loader(Device& device, std::byte* to) : device_(device), to_(to) {}

  WeightView matrix(const std::filesystem::path& file, const TensorEntry& tensor) {
    std::byte* const begin = to_;
    constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;
    for (std::uint64_t done = 0; done < tensor.bytes; done += kPiece) {
      const std::uint64_t count = std::min(kPiece, tensor.bytes - done);
      send(begin + done, read(file, tensor.offset + done, count));
    }
    upload_row_offsets(device_, *stream_, begin, tensor);
    stream_->synchronize();
    to_ += device_bytes(tensor);
    return matrix_on_device(begin, tensor);
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
  return {static_cast<int>(heads.heads.size()), bytes_needed(heads, model), heads.acceptance};
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
      const TensorEntry& head = own_head(model);
      const auto file = static_cast<std::size_t>(head.file);
      loaded.weights.matrices.push_back(loader.matrix(model.files().at(file), head));
    }
    return loaded;
  });
}

}  // namespace canopy
