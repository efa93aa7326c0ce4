#include "src/convert/enlargement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/convert/output.h"

namespace canopy {

namespace {

constexpr std::array<int, 2> kWidths{4, 16};
constexpr std::array<int, 3> kHeadFactors{4, 2, 1};
constexpr int kMostLayers = 128;
/// The widest MLP before layers are added: hidden_dim <= 4 dim, as in real models.
constexpr std::int64_t kMlpRatio = 4;
constexpr std::int64_t kMlpStep = 32;  // whole blocks and cache lines

std::uint64_t layer_bytes(const ModelConfig& c) {
  const auto dim = static_cast<std::uint64_t>(c.dim),
             hidden = static_cast<std::uint64_t>(c.hidden_dim);
  const auto q = static_cast<std::uint64_t>(c.heads) * static_cast<std::uint64_t>(c.head_dim);
  const auto kv = static_cast<std::uint64_t>(c.kv_heads) * static_cast<std::uint64_t>(c.head_dim);
  std::uint64_t values = dim * (2 * q + 2 * kv + 3 * hidden) + 2 * dim;
  if (c.layer(0).qkv_bias) values += q + 2 * kv;
  if (c.layer(0).qk_norm) values += 2 * static_cast<std::uint64_t>(c.head_dim);
  return 2 * values;
}

/// The widest MLP, in steps, whose model takes at most `bytes`; negative if there is none.
std::int64_t fitting_hidden_dim(ModelConfig config, std::uint64_t bytes) {
  config.hidden_dim = 0;
  const std::uint64_t fixed = bf16_bytes(config);
  if (fixed > bytes) return -1;
  const std::uint64_t per_neuron = std::uint64_t{6} * static_cast<std::uint64_t>(config.dim) *
                                   static_cast<std::uint64_t>(config.layers);
  return static_cast<std::int64_t>((bytes - fixed) / per_neuron) / kMlpStep * kMlpStep;
}

std::int64_t widest_mlp(const ModelConfig& small, const ModelConfig& big) {
  return std::max(kMlpRatio * big.dim, std::int64_t{small.hidden_dim});
}

ModelConfig widened(const ModelConfig& small, int width, int heads) {
  ModelConfig big = small;
  big.dim *= width;
  big.heads *= heads;
  big.kv_heads *= heads;
  big.rms_eps /= static_cast<float>(width);
  return big;
}

}  // namespace

std::uint64_t bf16_bytes(const ModelConfig& c) {
  const std::uint64_t table =
      2 * static_cast<std::uint64_t>(c.dim) * static_cast<std::uint64_t>(c.vocab);
  return layer_bytes(c) * static_cast<std::uint64_t>(c.layers) + (c.tied_head ? 1 : 2) * table +
         2 * static_cast<std::uint64_t>(c.dim);
}

ModelConfig enlarge(const ModelConfig& small, std::uint64_t bytes) {
  constexpr std::int64_t kMostDim = std::int64_t{1} << 20;
  if (small.dim > kMostDim)
    throw Error("a model of " + std::to_string(small.dim) + " dimensions is not enlarged further");
  if (!small.inflated_from.empty())
    throw Error("the model is itself an enlargement of '" + small.inflated_from +
                "'; enlarge the original");
  // A little above the size asked for beats a lot below it: the smallest shape is used up to 2 %
  // beyond.
  const ModelConfig smallest = widened(small, kWidths[0], 1);
  const std::uint64_t least = bf16_bytes(smallest);
  if (bytes < least - least / 50)
    throw Error("the smallest enlargement of this model takes " + format_size(least) + "; " +
                format_size(bytes) + " were asked for");
  for (const int width : kWidths) {
    for (const int heads : kHeadFactors) {
      ModelConfig big = widened(small, width, heads);
      // More heads only where the MLP can grow with them: shapes as in real models.
      const std::int64_t proportional = std::int64_t{heads} * small.hidden_dim;
      const std::int64_t hidden = fitting_hidden_dim(big, bytes);
      if (hidden < proportional && heads > 1) continue;
      big.hidden_dim = static_cast<int>(
          std::clamp(hidden, std::int64_t{small.hidden_dim}, widest_mlp(small, big)));
      if (hidden > widest_mlp(small, big)) {  // the layers must grow
        const std::uint64_t per_layer = layer_bytes(big);
        const std::uint64_t at_once = bf16_bytes(big);
        const std::uint64_t more = (bytes - at_once + per_layer - 1) / per_layer;
        if (more + static_cast<std::uint64_t>(small.layers) >
            static_cast<std::uint64_t>(std::max(kMostLayers, small.layers)))
          break;  // to the next width
        big.layers += static_cast<int>(more);
        big.hidden_dim = static_cast<int>(
            std::max(fitting_hidden_dim(big, bytes), std::int64_t{small.hidden_dim}));
      }
      return big;
    }
  }
  ModelConfig largest = widened(small, kWidths.back(), kHeadFactors.front());
  largest.hidden_dim = static_cast<int>(widest_mlp(small, largest));
  largest.layers = std::max(kMostLayers, small.layers);
  throw Error("the largest enlargement of this model takes " + format_size(bf16_bytes(largest)) +
              "; " + format_size(bytes) + " were asked for");
}

int source_layer(int layer, int small_layers, int big_layers) {
  // Layer i of the small one sits in the middle of the i-th of equal parts; parts are at least one
  // layer long, so no two share a place.
  const auto place = [&](std::int64_t i) { return (2 * i + 1) * big_layers / (2 * small_layers); };
  const std::int64_t guess = std::int64_t{layer} * small_layers / big_layers;
  for (std::int64_t i = std::max<std::int64_t>(guess - 1, 0);
       i <= std::min<std::int64_t>(guess + 1, small_layers - 1); ++i)
    if (place(i) == layer) return static_cast<int>(i);
  return -1;
}

std::vector<EnlargedTensor> enlarged_tensors(const Checkpoint& checkpoint, const ModelConfig& big) {
  const ModelConfig& small = checkpoint.config();
  const float norm_scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(big.dim / small.dim)));
  std::vector<EnlargedTensor> tensors;
  using Beside = EnlargedTensor::Beside;

  const auto add = [&](std::string name, const std::string& source, std::vector<std::int64_t> shape,
                       std::int64_t rows, std::int64_t columns, float scale, Beside beside) {
    const TensorEntry* entry = nullptr;
    if (!source.empty()) {
      entry = checkpoint.find(source);
      if (entry == nullptr) throw Error(checkpoint.root().string() + " lacks the tensor " + source);
    }
    tensors.push_back({std::move(name), std::move(shape), entry, rows, columns, scale, beside});
  };
  const auto vector = [&](const std::string& name, const std::string& source, std::int64_t size,
                          std::int64_t source_size, float scale, Beside beside) {
    add(name, source, {size}, 1, source.empty() ? 0 : source_size, scale, beside);
  };

  add("model.embed_tokens.weight", "model.embed_tokens.weight", {big.vocab, big.dim}, small.vocab,
      small.dim, 1.0f, Beside::kZero);
  for (int l = 0; l < big.layers; ++l) {
    const int from = source_layer(l, small.layers, big.layers);
    const std::string prefix = "model.layers." + std::to_string(l) + ".";
    const auto source = [&](std::string_view name) {
      return from < 0 ? std::string()
                      : "model.layers." + std::to_string(from) + "." + std::string(name);
    };
    const auto norm = [&](const std::string& name) {
      vector(prefix + name, source(name), big.dim, small.dim, norm_scale, Beside::kRandom);
    };
    /// reads the residual stream: an identity layer has added rows only
    const auto reads = [&](const std::string& name, std::int64_t rows, std::int64_t small_rows,
                           float scale = 1.0f) {
      add(prefix + name, source(name), {rows, big.dim}, from < 0 ? 0 : small_rows, small.dim, scale,
          Beside::kRandom);
    };
    /// writes to the residual stream: an identity layer has added columns only
    const auto writes = [&](const std::string& name, std::int64_t columns,
                            std::int64_t small_columns) {
      add(prefix + name, source(name), {big.dim, columns}, small.dim, from < 0 ? 0 : small_columns,
          1.0f, Beside::kRandom);
    };
    const std::int64_t q = std::int64_t{big.heads} * big.head_dim,
                       kv = std::int64_t{big.kv_heads} * big.head_dim,
                       small_q = std::int64_t{small.heads} * small.head_dim,
                       small_kv = std::int64_t{small.kv_heads} * small.head_dim;
    norm("input_layernorm.weight");
    // The norms of Q and K, over a head as wide as before, share the epsilon that was divided:
    // their inputs shrink with it.
    const float qk_scale = big.layer(l).qk_norm ? norm_scale : 1.0f;
    reads("self_attn.q_proj.weight", q, small_q, qk_scale);
    reads("self_attn.k_proj.weight", kv, small_kv, qk_scale);
    reads("self_attn.v_proj.weight", kv, small_kv);
    if (big.layer(l).qkv_bias) {
      const auto bias = [&](const std::string& name, std::int64_t size, std::int64_t source_size) {
        vector(prefix + name, source(name), size, source_size, 1.0f, Beside::kZero);
      };
      bias("self_attn.q_proj.bias", q, small_q);
      bias("self_attn.k_proj.bias", kv, small_kv);
      bias("self_attn.v_proj.bias", kv, small_kv);
    }
    if (big.layer(l).qk_norm) {  // shared by all heads
      for (const std::string name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
        vector(prefix + name, source(name), big.head_dim, small.head_dim, 1.0f, Beside::kRandom);
    }
    writes("self_attn.o_proj.weight", q, small_q);
    norm("post_attention_layernorm.weight");
    reads("mlp.gate_proj.weight", big.hidden_dim, small.hidden_dim);
    reads("mlp.up_proj.weight", big.hidden_dim, small.hidden_dim);
    writes("mlp.down_proj.weight", big.hidden_dim, small.hidden_dim);
  }
  vector("model.norm.weight", "model.norm.weight", big.dim, small.dim, norm_scale, Beside::kRandom);
  if (!big.tied_head)
    add("lm_head.weight", "lm_head.weight", {big.vocab, big.dim}, small.vocab, small.dim, 1.0f,
        Beside::kRandom);
  return tensors;
}

}  // namespace canopy
