// A model whose matrices are in blocks against the same model with each of them dequantised to F32,
// for every format of blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "offload/streamer.h"
#include "src/checkpoint/checkpoint.h"
#include "src/model/transformer.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy::testing {
namespace {

constexpr int kTokens = 24, kLayers = 2;

enum class Weights { kStay, kTravel };

/// The logits of some of the tokens of a fixed text.
std::vector<float> logits_of(const Checkpoint& checkpoint, std::unique_ptr<Device> device,
                             Weights where = Weights::kStay) {
  const std::unique_ptr<Stream> compute = device->make_stream("compute");
  Notes notes;
  const SweepLayout layout = lay_out_sweep(checkpoint);
  std::unique_ptr<WeightSource> weights;
  if (where == Weights::kStay) {
    weights = load_resident(*device, layout, {notes});
  } else {
    const Residency none = none_resident(layout);
    weights = std::make_unique<Streamer>(*device, layout, none,
                                         StreamerOptions{.ring_bytes = least_ring(layout, none)});
  }
  KvCache kv(*device, checkpoint.config(), kTokens, {});
  Transformer transformer(*device, checkpoint.config(), *weights,
                          {.max_nodes = kTokens, .max_logit_rows = 4, .max_context = kTokens});
  std::vector<TokenId> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back((i * i + 3) % checkpoint.config().vocab);
  std::vector<std::int32_t> position(kTokens);
  std::iota(position.begin(), position.end(), 0);
  const std::vector<std::int32_t> rows{0, 1, 9, kTokens - 1};
  const SequenceRows part{{tokens, position, {}, 0, rows}, &kv};
  const ConstTensorView logits = transformer.forward({&part, 1}, *compute);
  std::vector<float> out(logits.bytes() / sizeof(float));
  device->download(*compute, std::as_writable_bytes(std::span(out)), logits.data());
  compute->synchronize();
  return out;
}

class PackedModel : public ::testing::TestWithParam<WeightFormat> {
 protected:
  void SetUp() override {
    const bool wide = GetParam().block_elements > 32;
    TinyModel model = tiny_model({.layers = kLayers,
                                  .dim = wide ? 256 : 64,
                                  .hidden_dim = wide ? 512 : 96,
                                  .head_dim = wide ? 64 : 16,
                                  .matrices = GetParam().dtype});
    write_file(dir_ / "packed.gguf", gguf_writer(model).bytes());
    for (FileTensor& tensor : model.tensors) {
      if (!in_blocks(tensor.dtype)) continue;
      std::vector<float> values(static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]));
      dequantize_row(tensor.dtype, reinterpret_cast<const std::byte*>(tensor.bytes.data()), values);
      tensor.dtype = DType::kF32;
      tensor.bytes.assign(reinterpret_cast<const char*>(values.data()),
                          values.size() * sizeof(float));
    }
    write_file(dir_ / "plain.gguf", gguf_writer(model).bytes());
  }
  Checkpoint packed() const { return Checkpoint::open(dir_ / "packed.gguf"); }
  Checkpoint plain() const { return Checkpoint::open(dir_ / "plain.gguf"); }
  TempDir dir_;
};

TEST_P(PackedModel, IsKeptInItsFormat) {
  const Checkpoint checkpoint = packed();
  for (const TensorEntry& tensor : checkpoint.tensors())
    EXPECT_EQ(tensor.dtype, tensor.shape.size() == 2 ? GetParam().dtype : DType::kF32);
}

TEST_P(PackedModel, HasTheLogitsOfTheSameModelInF32BitForBitOnTheCpu) {
  EXPECT_EQ(logits_of(packed(), make_device({.kind = "cpu"})),
            logits_of(plain(), make_device({.kind = "cpu"})));
}

TEST_P(PackedModel, HasTheSameLogitsStreamed) {
  EXPECT_EQ(logits_of(packed(), make_device({.kind = "cpu"}), Weights::kTravel),
            logits_of(packed(), make_device({.kind = "cpu"})));
}

TEST_P(PackedModel, OnEmulatedCudaDiffersByTheRoundingToF16Alone) {
  const std::vector<float> packed = logits_of(this->packed(), std::make_unique<EmulatedCuda>()),
                           plain = logits_of(this->plain(), std::make_unique<EmulatedCuda>());
  float largest = 0;
  for (const float logit : plain) largest = std::max(largest, std::abs(logit));
  // Activations and weights are rounded before each product, by 2^-11 at most: four times on the
  // way through a layer and once before the head. Each rounding moves the logits by about its share
  // of their size, and they are independent. An estimate, and twice that for its roughness, as in
  // golden_test.cc.
  constexpr int kRoundings = 2 * (4 * kLayers + 1);
  const float tolerance = 2 * std::sqrt(static_cast<float>(kRoundings)) * 0x1p-11f * largest;
  for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_NEAR(packed[i], plain[i], tolerance);
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedModel, ::testing::ValuesIn(as_data(GgufBlocks())),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace canopy::testing
