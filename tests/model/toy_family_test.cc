// A family that Canopy does not know runs through the decoder as it is.
#include "tests/checkpoint/toy_family.h"

#include <gtest/gtest.h>

#include <numeric>

#include "offload/streamer.h"
#include "src/model/transformer.h"

namespace canopy::testing {
namespace {

std::vector<float> logits_of(const Checkpoint& checkpoint, const ModelConfig& config) {
  constexpr int kTokens = 20;
  const auto device = make_device({.threads = 1});
  Notes notes;
  const auto weights = load_resident(*device, lay_out_sweep(checkpoint), {notes});
  Transformer model(*device, config, *weights,
                    {.max_nodes = kTokens, .max_logit_rows = kTokens, .max_context = kTokens});
  KvCache kv(*device, config, kTokens, {});
  const auto stream = device->make_stream("compute");
  std::vector<std::int32_t> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 0);  // and their positions
  const SequenceRows part{{tokens, tokens, {}, 0, tokens}, &kv, 0};
  const ConstTensorView logits = model.forward({&part, 1}, *stream);
  std::vector<float> values(logits.bytes() / sizeof(float));
  device->download(*stream, std::as_writable_bytes(std::span(values)), logits.data());
  stream->synchronize();
  return values;
}

TEST(ToyFamily, GivesTheSameLogitsFromBothContainersEachLayerByItsKind) {
  const TempDir dir;
  write_hugging_face(dir / "toy", stored_toy());
  write_toy_gguf(dir / "toy.gguf");
  const Checkpoint toy = Checkpoint::open(dir / "toy", kToyFamilies),
                   gguf = Checkpoint::open(dir / "toy.gguf", kToyFamilies);
  const std::vector<float> logits = logits_of(toy, toy.config());
  EXPECT_EQ(logits_of(gguf, gguf.config()), logits);
  ModelConfig plain = toy.config();
  plain.layer_kinds.back().qk_norm = false;
  EXPECT_NE(logits_of(toy, plain), logits) << "every second layer has norms of Q and K";
}

}  // namespace
}  // namespace canopy::testing
