#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "tests/model/random_weights.h"

namespace canopy::testing {

using Tokens = std::vector<TokenId>;

/// A small draft model of random weights on the CPU, and what it says of any text.
struct TinyDraft : public ::testing::Test {
  TinyDraft()
      : config(tiny_config()),
        device(make_device({"cpu", 0, 1, {}})),
        stream(device->make_stream("test")),
        weights(*device, config, 7),
        model(*device, config, weights,
              {.max_nodes = 128,
               .max_tree = 64,
               .max_logit_rows = 64,
               .max_context = 256,
               .chunk = 32}) {}

  KvCache cache() { return KvCache(*device, config, 256, {}); }
  std::vector<float> download(ConstTensorView view) {
    std::vector<float> values(view.bytes() / sizeof(float));
    device->download(*stream, std::as_writable_bytes(std::span(values)), view.data());
    stream->synchronize();
    return values;
  }
  /// The logits that follow a text, computed as plain text into an empty cache.
  TensorView logits_after(const Tokens& text, KvCache& kv) {
    std::vector<std::int32_t> position(text.size());
    std::iota(position.begin(), position.end(), 0);
    const std::int32_t last = position.back();
    const SequenceRows part[] = {{{text, position, {}, 0, {&last, 1}}, &kv}};
    return model.forward(part, *stream);
  }

  ModelConfig config;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  RandomWeights weights;
  Transformer model;
};

}  // namespace canopy::testing
