// A model of FP8 against the same model with its weights in F32.
#include <gtest/gtest.h>

#include <numeric>

#include "offload/streamer.h"
#include "offload/upload/device_weights.h"
#include "src/model/transformer.h"
#include "tests/checkpoint/fp8_files.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy::testing {
namespace {

constexpr int kTextTokens = 40;

/// The logits of a text in `pieces` sweeps, as bytes.
std::string logits_in_pieces(Device& device, const ModelConfig& config, WeightSource& weights,
                             int pieces = 1) {
  Transformer model(
      device, config, weights,
      {.max_nodes = kTextTokens, .max_logit_rows = kTextTokens, .max_context = kTextTokens});
  KvCache kv(device, config, kTextTokens, {});
  const auto stream = device.make_stream("compute");
  std::string out;
  const int length = kTextTokens / pieces;
  for (int first = 0; first < kTextTokens; first += length) {
    std::vector<TokenId> tokens;
    for (int i = first; i < first + length; ++i) tokens.push_back(i * 7 % config.vocab);
    std::vector<std::int32_t> position(tokens.size()), rows(tokens.size());
    std::iota(position.begin(), position.end(), first);
    std::iota(rows.begin(), rows.end(), 0);
    const SequenceRows part{{tokens, position, {}, 0, rows}, &kv, first};
    const ConstTensorView logits = model.forward({&part, 1}, *stream);
    std::vector<std::byte> values(logits.bytes());
    device.download(*stream, values, logits.data());
    stream->synchronize();
    out.append(reinterpret_cast<const char*>(values.data()), values.size());
  }
  return out;
}

class Fp8Model : public ::testing::TestWithParam<Fp8Form> {
 protected:
  void SetUp() override {
    const Fp8Models models = fp8_models(GetParam());
    write_hugging_face(dir_ / "fp8", models.fp8, 1, 3);  // tensors lie at any byte
    write_hugging_face(dir_ / "plain", models.plain);
    fp8_.emplace(Checkpoint::open(dir_ / "fp8"));
    plain_.emplace(Checkpoint::open(dir_ / "plain"));
  }
  const TempDir dir_;
  std::optional<Checkpoint> fp8_, plain_;
};

TEST_P(Fp8Model, HasTheLogitsOfTheDequantisedModelBitForBitHoweverManyRowsAreInFlight) {
  const auto device = make_device({.threads = 2});
  Notes notes;
  const auto plain = load_resident(*device, lay_out_sweep(*plain_), {notes});
  const auto fp8 = load_resident(*device, lay_out_sweep(*fp8_), {notes});
  const std::string expected = logits_in_pieces(*device, plain_->config(), *plain);
  for (const int pieces : {1, 4, 10, 20, 40})
    EXPECT_TRUE(logits_in_pieces(*device, fp8_->config(), *fp8, pieces) == expected) << pieces;
}

TEST_P(Fp8Model, StreamedEqualsResident) {
  const auto device = make_device({.threads = 2});
  Notes notes;
  const SweepLayout layout = lay_out_sweep(*fp8_);
  const auto resident = load_resident(*device, layout, {notes});
  const std::string expected = logits_in_pieces(*device, fp8_->config(), *resident, 2);
  const std::size_t all = travelling_bytes(layout, none_resident(layout));
  EXPECT_LT(all,
            travelling_bytes(lay_out_sweep(*plain_), none_resident(lay_out_sweep(*plain_))) / 2);
  for (const std::size_t rests : {std::size_t{0}, all / 2}) {
    const Residency residency = spread_resident(layout, rests);
    Streamer streamer(*device, layout, residency, {.ring_bytes = least_ring(layout, residency)});
    EXPECT_TRUE(logits_in_pieces(*device, fp8_->config(), streamer, 2) == expected) << rests;
  }
}

TEST_P(Fp8Model, IsCopiedToADeviceWithMemoryOfItsOwnFromEveryTier) {
  EmulatedCuda device;
  Notes notes;
  const SweepLayout layout = lay_out_sweep(*fp8_);
  const auto resident = load_resident(device, layout, {notes});
  const std::string expected = logits_in_pieces(device, fp8_->config(), *resident, 2);
  Residency residency = none_resident(layout);
  for (std::size_t i = 0; i < residency.unit.size(); ++i)
    residency.unit[i] = static_cast<Tier>(i % 3);
  UploadedWeights uploaded(
      device, layout, residency,
      std::make_unique<Streamer>(device, layout, residency,
                                 StreamerOptions{.ring_bytes = least_ring(layout, residency)}),
      {notes});
  uploaded.begin(least_device_ring(layout, residency), notes);
  EXPECT_TRUE(logits_in_pieces(device, fp8_->config(), uploaded, 2) == expected);
}

INSTANTIATE_TEST_SUITE_P(Forms, Fp8Model,
                         ::testing::Values(kFp8Forms[0], kFp8Forms[2], kFp8Forms[4], kFp8Forms[7]),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace canopy::testing
