#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "offload/experts/expert_cache.h"
#include "offload/streamer.h"
#include "offload/upload/device_weights.h"
#include "src/model/transformer.h"
#include "tests/kernels/emulated_cuda.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

/// A real container on disk, whose weights come once from memory and once through the ring.
class StreamedTest : public ::testing::TestWithParam<const char*> {};

std::vector<float> logits_of(Device& device, const ModelConfig& config, WeightSource& weights) {
  constexpr int kTokens = 50;
  Transformer model(device, config, weights, {kTokens, 0, kTokens, kTokens, 16});
  KvCache kv(device, config, kTokens, {});
  const auto stream = device.make_stream("compute");
  std::vector<TokenId> tokens(kTokens);
  std::vector<std::int32_t> position(kTokens);
  std::iota(position.begin(), position.end(), 0);
  for (int i = 0; i < kTokens; ++i) tokens[static_cast<std::size_t>(i)] = i * 7 % config.vocab;
  const SequenceRows part{{tokens, position, {}, 0, position}, &kv, 0};
  std::vector<float> out;
  for (int sweep = 0; sweep < 3; ++sweep) {  // the ring goes round
    const ConstTensorView logits = model.forward({&part, 1}, *stream);
    std::vector<float> values(logits.bytes() / sizeof(float));
    device.download(*stream, std::as_writable_bytes(std::span(values)), logits.data());
    stream->synchronize();
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

TEST_P(StreamedTest, EqualsResidentBitForBit) {
  const Checkpoint checkpoint =
      Checkpoint::open(std::filesystem::path(CANOPY_TEST_DATA) / "model" / GetParam());
  const auto device = make_device({.threads = 2});
  Notes notes;
  const SweepLayout layout = lay_out_sweep(checkpoint);
  const auto resident = load_resident(*device, layout, {notes});
  const std::vector<float> expected = logits_of(*device, checkpoint.config(), *resident);
  const std::size_t model = travelling_bytes(layout, none_resident(layout));
  for (const std::size_t rests : {std::size_t{0}, model / 3, model / 2, model}) {
    const Residency residency = spread_resident(layout, rests);
    for (const std::size_t ring : {2, 3, 100}) {
      const std::size_t bytes = least_ring(layout, residency) / 2 * ring;
      Streamer streamer(*device, layout, residency, {.ring_bytes = bytes});
      EXPECT_EQ(logits_of(*device, checkpoint.config(), streamer), expected)
          << rests << " bytes at rest, a ring of " << ring;
    }
  }
}

TEST_P(StreamedTest, EqualsResidentOnADeviceWithMemoryOfItsOwn) {
  const Checkpoint checkpoint =
      Checkpoint::open(std::filesystem::path(CANOPY_TEST_DATA) / "model" / GetParam());
  EmulatedCuda device;
  Notes notes;
  const SweepLayout layout = lay_out_sweep(checkpoint);
  const auto resident = load_resident(device, layout, {notes});
  const std::vector<float> expected = logits_of(device, checkpoint.config(), *resident);
  Residency residency = none_resident(layout);
  for (std::size_t i = 0; i < layout.units.size(); ++i)
    residency.unit[i] = static_cast<Tier>(i % 3);
  const std::size_t ring = least_ring(layout, residency);
  UploadedWeights uploaded(
      device, layout, residency,
      std::make_unique<Streamer>(device, layout, residency, StreamerOptions{.ring_bytes = ring}),
      {notes});
  uploaded.begin(least_device_ring(layout, residency), notes);
  EXPECT_EQ(logits_of(device, checkpoint.config(), uploaded), expected);
}

/// A mixture whose experts come out of a cache.
class CachedTest : public StreamedTest {};

TEST_P(CachedTest, EqualsResidentBitForBitWhateverStays) {
  const Checkpoint checkpoint =
      Checkpoint::open(std::filesystem::path(CANOPY_TEST_DATA) / "model" / GetParam());
  const auto device = make_device({.threads = 2});
  Notes notes;
  const auto resident = load_resident(*device, lay_out_sweep(checkpoint), {notes});
  const std::vector<float> expected = logits_of(*device, checkpoint.config(), *resident);
  const SweepLayout apart = lay_out_sweep(checkpoint, ExpertsAre::kApart);
  for (const std::size_t stay : {std::size_t{0}, apart.experts.size() / 3, apart.experts.size()})
    for (const bool streams : {false, true}) {
      const Residency residency = streams ? none_resident(apart) : all_resident(apart);
      std::unique_ptr<WeightSource> units;
      if (streams)
        units = std::make_unique<Streamer>(
            *device, apart, residency, StreamerOptions{.ring_bytes = least_ring(apart, residency)});
      else
        units = load_on_host(*device, apart, residency, {notes});
      WithExperts weights(
          std::move(units),
          std::make_unique<ExpertCache>(*device, apart, ExpertCache::spare_slots(apart) + stay,
                                        StreamerOptions()));
      EXPECT_EQ(logits_of(*device, checkpoint.config(), weights), expected)
          << stay << " stay" << (streams ? ", units travel" : "");
    }
}

INSTANTIATE_TEST_SUITE_P(Mixtures, CachedTest,
                         ::testing::Values("mixtral", "mixtral.gguf", "qwen3_moe", "qwen3_moe.gguf",
                                           "qwen3_moe_fp8", "olmoe", "olmoe.gguf", "qwen2_moe",
                                           "qwen2_moe.gguf", "glm4_moe", "glm4_moe.gguf",
                                           "minimax_m2", "minimax_m2.gguf", "dots1", "dots1.gguf",
                                           "gpt_oss.gguf", "gpt_oss_mxfp4.gguf",
                                           "mixtral_factors.gguf", "qwen3_5_moe",
                                           "qwen3_5_moe.gguf", "qwen3_next", "qwen3_next.gguf",
                                           "qwen3_next_ssm_in.gguf", "qwen3_next_fp8"),
                         [](const auto& info) { return test_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Checkpoints, StreamedTest,
                         ::testing::Values("llama2", "llama2_shards", "llama2_odd", "opt",
                                           "opt_after", "bloom", "ministral3", "mistral3",
                                           "seed_oss", "qwen3_moe_fp8", "phi3", "gemma3", "gemma4",
                                           "apertus", "glm4", "cohere2", "llama_iq.gguf", "qwen3_5",
                                           "qwen3_5.gguf", "qwen3_5_fp8"),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace canopy
