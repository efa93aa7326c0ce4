#include "src/engine/head_source.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "offload/unit_layout.h"
#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "src/speculation/drafters/head_drafter.h"

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

/// Puts one tensor after the other into memory of the device.
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

HeadWeights load_heads(Device& device, const MedusaHeads& heads, const Checkpoint& model) {
  return in_context("loading the heads of " + heads.file.string(), [&] {
    HeadWeights loaded;
    loaded.memory = device.allocate(bytes_needed(heads, model));
    Loader loader(device, loaded.memory.data());
    for (const MedusaHeads::Head& head : heads.heads) {
      auto& blocks = loaded.blocks.emplace_back();
      for (const MedusaHeads::Block& block : head.blocks) {
        const WeightView weight = loader.matrix(heads.file, block.weight);
        blocks.push_back(
            {weight, block.bias ? loader.vector(heads.file, *block.bias) : ConstTensorView()});
      }
      if (head.matrix) loaded.matrices.push_back(loader.matrix(heads.file, *head.matrix));
    }
    if (loaded.matrices.empty()) {
      const TensorEntry whole = own_head(model), part = shared_matrix(heads, model);
      const auto& file = model.files().at(static_cast<std::size_t>(whole.file));
      loaded.matrices.push_back(
          part.shape == whole.shape
              ? loader.matrix(file, whole)
              : loader.columns(file, part, row_bytes(whole.dtype, whole.shape[1])));
    }
    return loaded;
  });
}

class HeadSource final : public DraftSource {
 public:
  HeadSource(const MedusaHeads& heads, const Checkpoint& model) : heads_(heads), model_(model) {}

  std::string name() const override { return std::to_string(levels()) + " heads"; }
  Acceptance prior(double) const override {
    return acceptance_of_heads(levels(), heads_.acceptance);
  }
  std::string prior_in_words() const override {
    return heads_.acceptance.empty() ? "assumed to be what heads of a small model had"
                                     : "as measured when the heads were trained";
  }
  int levels() const override { return static_cast<int>(heads_.heads.size()); }
  bool has_heads() const override { return true; }
  DraftNeeds needs(const DraftBounds& bounds) const override {
    const HeadDrafter::Limits limits = limits_of(bounds);
    DraftNeeds needs;
    needs.device = {{"weights", bytes_needed(heads_, model_), 1},
                    {"values and logits", HeadDrafter::device_bytes(levels(), limits),
                     HeadDrafter::kAllocations}};
    needs.workload = HeadDrafter::workload(levels(), limits);
    return needs;
  }
  std::unique_ptr<Drafter> make(Device& device, const DraftBounds& bounds) const override {
    return std::make_unique<HeadDrafter>(device, load_heads(device, heads_, model_),
                                         limits_of(bounds));
  }

 private:
  HeadDrafter::Limits limits_of(const DraftBounds& bounds) const {
    return {heads_.dim, bounds.vocab, bounds.nodes, bounds.texts};
  }

  const MedusaHeads heads_;
  const Checkpoint model_;
};

}  // namespace

std::shared_ptr<const DraftSource> head_source(const MedusaHeads& heads, const Checkpoint& model) {
  return std::make_shared<HeadSource>(heads, model);
}

}  // namespace canopy
