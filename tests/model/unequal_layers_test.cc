// Layers that differ in size are those of a model of equal layers whose weights are zero where the
// smaller ones have none, or the same for heads that share: an independent way to the same logits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

#include "offload/embedding.h"
#include "offload/weight_source.h"
#include "src/model/transformer.h"
#include "tests/tiny_config.h"

namespace canopy {
namespace {

/// [rows, columns].
struct Matrix {
  int rows = 0, columns = 0;
  std::vector<float> values = std::vector<float>(static_cast<std::size_t>(rows * columns));

  float& at(int row, int column) {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  float at(int row, int column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
};

struct Layer {
  Matrix q, k, v, out, gate, up, down;
};

/// Lends matrices in memory. Norms are ones.
class Held final : public WeightSource {
 public:
  Held(Device& device, const ModelConfig& config, const Matrix& embedding, const Matrix& head,
       const std::vector<Layer>& layers)
      : embedding_(device, keep(embedding)), ones_(static_cast<std::size_t>(config.dim), 1) {
    using enum TensorRole;
    for (int i = 0; i < config.layers; ++i) {
      const Layer& layer = layers[static_cast<std::size_t>(i)];
      if (config.layer(i).attention)
        add({i, UnitKind::kAttention}, kAttentionNorm,
            {{kQuery, layer.q}, {kKey, layer.k}, {kValue, layer.v}, {kOutput, layer.out}});
      if (config.layer(i).mlp)
        add({i, UnitKind::kMlp}, kMlpNorm,
            {{kGate, layer.gate}, {kUp, layer.up}, {kDown, layer.down}});
    }
    add({config.layers, UnitKind::kHead, 0, config.vocab}, kFinalNorm, {{kHead, head}});
  }

  std::span<const Unit> units() const override { return units_; }
  UnitLease acquire(std::size_t index, Stream& compute, const std::stop_token&) override {
    return lend(index, weights_[index], compute);
  }
  void abandon_sweep() noexcept override {}
  EmbeddingTable& embedding() override { return embedding_; }

 private:
  void give_back(std::size_t, Stream&) noexcept override {}
  WeightView keep(const Matrix& matrix) {
    kept_.push_back(matrix.values);
    return {reinterpret_cast<const std::byte*>(kept_.back().data()), DType::kF32, matrix.rows,
            matrix.columns};
  }
  void add(const Unit& unit, TensorRole norm,
           const std::vector<std::pair<TensorRole, Matrix>>& matrices) {
    units_.push_back(unit);
    UnitWeights& weights = weights_.emplace_back();
    weights.add(norm, ConstTensorView(reinterpret_cast<const std::byte*>(ones_.data()), DType::kF32,
                                      {std::ssize(ones_)}));
    for (const auto& [role, matrix] : matrices) weights.add(role, keep(matrix));
  }

  std::deque<std::vector<float>> kept_;
  EmbeddingLookup embedding_;
  std::vector<float> ones_;
  std::vector<Unit> units_;
  std::vector<UnitWeights> weights_;
};

std::vector<float> logits_of(Device& device, const ModelConfig& config, Held& weights) {
  constexpr int kTokens = 30;
  Transformer model(device, config, weights,
                    {.max_nodes = kTokens, .max_logit_rows = kTokens, .max_context = kTokens});
  KvCache kv(device, config, kTokens, {});
  const auto stream = device.make_stream("compute");
  std::vector<std::int32_t> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), 0);  // and their positions
  const SequenceRows part{{tokens, tokens, {}, 0, tokens}, &kv, 0};
  const ConstTensorView logits = model.forward({&part, 1}, *stream);
  stream->synchronize();
  std::vector<float> values(logits.bytes() / sizeof(float));
  std::memcpy(values.data(), logits.data(), logits.bytes());
  return values;
}

TEST(UnequalLayers, HaveTheLogitsOfEqualOnesWithZerosInTheirPlaces) {
  ModelConfig small = tiny_config();
  constexpr int kHeads = 4, kSize = 16, kHidden = 80;
  small.kv_heads = kHeads;  // of the equal layers, where each KV head is written out
  ModelConfig equal = small;
  small.layers = equal.layers = 6;
  small.layer_kinds = {{.kv_heads = 2}, {.heads = 2, .kv_heads = 1},
                       {.mlp = false},  {.attention = false, .hidden_dim = 40},
                       {.head_dim = 8}, {.hidden_dim = 24}};
  small.kind_of_layer = {4, 0, 1, 2, 3, 5};
  const std::vector<float>& frequencies = small.rope_inverse_frequency;
  for (std::size_t kind = 0; kind < small.layer_kinds.size(); ++kind)
    small.rope_of_kind.emplace_back(frequencies.begin(), frequencies.begin() + (kind == 4 ? 4 : 8));

  std::mt19937 random(7);
  const auto matrix = [&](int rows, int columns) {
    Matrix made{rows, columns};
    std::normal_distribution<float> normal(0, 1.5f / std::sqrt(static_cast<float>(columns)));
    for (float& value : made.values) value = normal(random);
    return made;
  };
  const int dim = small.dim;
  std::vector<Layer> layers, padded;
  for (int i = 0; i < small.layers; ++i) {
    const auto [heads, kv_heads, size, hidden, experts] = small.sizes(i);
    Layer layer, wide;
    wide.q = wide.k = wide.v = Matrix{kHeads * kSize, dim};
    wide.out = Matrix{dim, kHeads * kSize};
    if (heads > 0) {
      layer.q = matrix(heads * size, dim), layer.k = matrix(kv_heads * size, dim);
      layer.v = matrix(kv_heads * size, dim), layer.out = matrix(dim, heads * size);
    }
    // Rotation turns number j of a head with number j + size / 2.
    const auto place = [&, size = size](int head, int j) {
      return head * kSize + (j < size / 2 ? j : kSize / 2 + j - size / 2);
    };
    // Scores are divided by the root of the head's size.
    const float scale =
        size > 0 ? std::sqrt(static_cast<float>(kSize) / static_cast<float>(size)) : 0;
    for (int head = 0; head < heads; ++head)
      for (int j = 0; j < size; ++j) {
        const int own = head * size + j, shared = head / (heads / kv_heads) * size + j;
        for (int c = 0; c < dim; ++c) {
          wide.q.at(place(head, j), c) = scale * layer.q.at(own, c);
          wide.k.at(place(head, j), c) = layer.k.at(shared, c);
          wide.v.at(place(head, j), c) = layer.v.at(shared, c);
          wide.out.at(c, place(head, j)) = layer.out.at(c, own);
        }
      }
    wide.gate = wide.up = Matrix{kHidden, dim};
    wide.down = Matrix{dim, kHidden};
    if (hidden > 0)
      layer.gate = matrix(hidden, dim), layer.up = matrix(hidden, dim),
      layer.down = matrix(dim, hidden);
    for (int h = 0; h < hidden; ++h)
      for (int c = 0; c < dim; ++c) {
        wide.gate.at(h, c) = layer.gate.at(h, c);
        wide.up.at(h, c) = layer.up.at(h, c);
        wide.down.at(c, h) = layer.down.at(c, h);
      }
    layers.push_back(std::move(layer));
    padded.push_back(std::move(wide));
  }
  const Matrix embedding = matrix(small.vocab, dim), head = matrix(small.vocab, dim);
  const auto device = make_device({.threads = 1});
  Held held(*device, small, embedding, head, layers), wide(*device, equal, embedding, head, padded);
  const std::vector<float> got = logits_of(*device, small, held),
                           want = logits_of(*device, equal, wide);
  ASSERT_EQ(got.size(), want.size());
  float largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    ASSERT_NEAR(got[i], want[i], 2e-4f) << "logit " << i;  // sums run in another order
  }
  EXPECT_GT(largest, 1.0f);
}

TEST(UnequalLayers, TakeTheMemoryOfTheirOwnKeysAndValues) {
  const ModelConfig config = unequal_config();
  std::size_t columns = 0;  // of keys, all layers
  for (int i = 0; i < config.layers; ++i)
    columns += static_cast<std::size_t>(config.sizes(i).kv_heads * config.sizes(i).head_dim);
  EXPECT_EQ(columns, 3u * 8 + 2 * 16 + 2 * 16 + 0 + 1 * 32 + 2 * 16);
  EXPECT_EQ(KvPool::bytes_needed(config, 3, {}), 3 * kKvBlock * columns * 2 * sizeof(float));
  const auto device = make_device({.threads = 1});
  const KvPool pool(*device, config, 3, {});
  EXPECT_EQ(pool.block_bytes(), kKvBlock * columns * 2 * sizeof(float));
  EXPECT_FALSE(pool.has(3));
  EXPECT_EQ(pool.keys(4).dim(2), 32);
}

}  // namespace
}  // namespace canopy
