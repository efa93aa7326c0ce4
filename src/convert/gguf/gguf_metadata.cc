#include "src/convert/gguf/gguf_metadata.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/checkpoint/families.h"
#include "src/convert/quantize/source_rope.h"
#include "src/convert/source_files.h"

namespace canopy {

namespace {

/// Counts the layers without experts before all others, where layers differ in nothing else; else
/// 0.
int leading_dense(const ModelConfig& c) {
  if (c.layer_kinds.size() != 2) return 0;
  LayerConfig as_dense = c.layer_kinds[0];
  as_dense.experts = false;
  if (as_dense != c.layer_kinds[1] || c.layer_kinds[1].experts) return 0;
  const auto first = std::find(c.kind_of_layer.begin(), c.kind_of_layer.end(), 0);
  const bool alone = std::find(first, c.kind_of_layer.end(), 1) == c.kind_of_layer.end();
  return alone ? static_cast<int>(first - c.kind_of_layer.begin()) : 0;
}

bool have_alike_mlps(const ModelConfig& c) {
  return std::ranges::all_of(c.layer_kinds, [&](const LayerConfig& kind) {
    return kind.experts == c.layer_kinds.front().experts;
  });
}

/// Throws Error: GGUF cannot say this of the model.
[[noreturn]] void refuse_gguf(const Checkpoint& model, const std::string& what) {
  throw Error(model.root().string() + ": GGUF files of " +
              std::string(gguf_architecture(model.config())) + " " + what);
}

/// Says which layers have a window, and how wide it is.
void add_windows(const Checkpoint& model, const Family& family, GgufMetadata& metadata) {
  const ModelConfig& c = model.config();
  const std::string architecture(family.gguf);
  const bool alike = c.layer_kinds.size() == 1;
  int window = 0;
  for (const LayerConfig& kind : c.layer_kinds) window = std::max(window, kind.window);
  ModelConfig usual = c;
  usual.set_every(family.period != 0 ? family.period : 2);
  // The usual pattern needs no key, but where other readers ask for one.
  const bool as_usual = alike || usual.kind_of_layer == c.kind_of_layer;
  if (window == 0) {
    if (family.period != 0 && !as_usual)
      refuse_gguf(model, "have every " + std::to_string(family.period) +
                             "th layer unrotated, and this model has others");
    return;
  }
  if (!family.windows && !(family.uniform_window && alike))
    refuse_gguf(model, "have no key for windows, which this model has");
  metadata.emplace_back(architecture + ".attention.sliding_window",
                        static_cast<std::uint32_t>(window));
  if (as_usual && !family.full_heads) return;
  std::vector<std::int32_t> windowed;
  for (const std::uint8_t kind : c.kind_of_layer) windowed.push_back(kind == 0 ? 1 : 0);
  metadata.emplace_back(architecture + ".attention.sliding_window_pattern", std::move(windowed));
}

void add_xielu(const ModelConfig& c, GgufMetadata& metadata) {
  if (c.xielu.empty()) return;
  for (const auto& [key, part] : {std::pair{"xielu.alpha_p", &Xielu::alpha_p},
                                  {"xielu.alpha_n", &Xielu::alpha_n},
                                  {"xielu.beta", &Xielu::beta},
                                  {"xielu.eps", &Xielu::eps}}) {
    std::vector<float> of_layers;
    for (const Xielu& xielu : c.xielu) of_layers.push_back(xielu.*part);
    metadata.emplace_back(key, std::move(of_layers));
  }
}

/// Says how many heads of keys there are and how large heads are, by kind of layer where those
/// differ.
void add_kv_heads(const ModelConfig& c, const Family& family, GgufMetadata& metadata) {
  const auto add = [&](const char* key, GgufValue value) {
    metadata.emplace_back(std::string(family.gguf) + ".attention." + key, std::move(value));
  };
  const auto add_length = [&](const std::string& end, int head_dim) {
    for (const char* of : {"key_length", "value_length"})
      add((of + end).c_str(), static_cast<std::uint32_t>(head_dim));
  };
  add_length("", c.head_dim_of(c.layer_kinds.back()));
  if (!family.full_heads) return add("head_count_kv", static_cast<std::uint32_t>(c.kv_heads));
  add_length("_swa", c.head_dim);
  std::vector<std::int32_t> kv_heads;
  for (int layer = 0; layer < c.layers; ++layer) kv_heads.push_back(c.sizes(layer).kv_heads);
  add("head_count_kv", std::move(kv_heads));
  // Other readers ask for it.
  add("shared_kv_layers", std::uint32_t{0});
  metadata.emplace_back(std::string(family.gguf) + ".embedding_length_per_layer_input",
                        std::uint32_t{0});
  metadata.emplace_back(std::string(family.gguf) + ".rope.dimension_count_swa",
                        static_cast<std::uint32_t>(c.head_dim));
}

/// Says which layers attend, and the sizes of the delta nets that the others are.
void add_delta(const Checkpoint& model, const Family& family, GgufMetadata& metadata) {
  const ModelConfig& c = model.config();
  const auto number = [&](const char* key, int value) {
    metadata.emplace_back(std::string(family.gguf) + "." + key, static_cast<std::uint32_t>(value));
  };
  int interval = 1;
  while (!c.layer(interval - 1).attention) ++interval;
  for (int layer = 0; layer < c.layers; ++layer)
    if (c.layer(layer).attention != ((layer + 1) % interval == 0))
      refuse_gguf(model, "have an attention in every Nth layer, and this model in others");
  number("full_attention_interval", interval);
  number("ssm.conv_kernel", static_cast<int>(length(Length::kTaps, c)));
  number("ssm.state_size", c.delta.key_dim);
  number("ssm.group_count", c.delta.key_heads);
  number("ssm.time_step_rank", c.delta.value_heads);
  number("ssm.inner_size", c.delta.values());
  if (family.joined_delta) return;
  // Pairs of a head whose positions are those of time, height and width, in turns: all are the
  // token's in a text, and other readers ask for them.
  const auto pairs = static_cast<std::int32_t>(c.rope_inverse_frequency.size());
  metadata.emplace_back(std::string(family.gguf) + ".rope.dimension_sections",
                        std::vector<std::int32_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
}

/// Says what is multiplied and bounded, or throws Error where the format has no key for it.
void add_factors(const Checkpoint& model, const Family& family, GgufMetadata& metadata) {
  const DecoderFactors& factors = model.config().factors;
  const std::string architecture(family.gguf);
  const auto real = [&](const char* key, float value) {
    metadata.emplace_back(architecture + "." + key, value);
  };
  if (family.factors) {
    if (factors.embedding != 1) real("embedding_scale", factors.embedding);
    if (factors.branch != 1) real("residual_scale", factors.branch);
    real("logit_scale", family.gguf_divides_logits ? 1 / factors.logit : factors.logit);
    if (factors.score != 0) real("attention.scale", factors.score);
  }
  if (!family.scaled_embedding) return;
  if (factors.logit_cap != family.usual_logit_cap)
    real("final_logit_softcapping", factors.logit_cap);
  if (factors.score_cap != family.usual_score_cap)
    real("attn_logit_softcapping", factors.score_cap);
  const float implied = gguf_score_factor(family, model.config());
  if (std::abs(factors.score - implied) > 0x1p-20f * implied)
    refuse_gguf(model, "have no key for the factor of scores, which is " +
                           std::to_string(factors.score) + " and not " + std::to_string(implied));
}

}  // namespace

GgufMetadata gguf_model_metadata(const Checkpoint& model, std::uint32_t file_type) {
  const ModelConfig& c = model.config();
  const Family& family = family_of(c);
  const std::string architecture(gguf_architecture(c));
  GgufMetadata metadata;
  const auto general = [&](const char* key, GgufValue value) {
    metadata.emplace_back(std::string("general.") + key, std::move(value));
  };
  const auto number = [&](const char* key, auto value) {
    metadata.emplace_back(architecture + "." + key, static_cast<std::uint32_t>(value));
  };
  const auto real = [&](const char* key, double value) {
    metadata.emplace_back(architecture + "." + key, static_cast<float>(value));
  };
  const int dense = leading_dense(c);
  const bool differ = c.recurrent() ? !have_alike_mlps(c) : c.sizes_differ();
  if (differ && !(family.leading_dense && dense > 0) && !family.full_heads)
    throw Error(model.root().string() +
                ": its layers differ in size, for which Canopy writes no GGUF");
  general("architecture", architecture);
  general("type", std::string("model"));
  general("name", model_name(model));
  general("file_type", file_type);
  general("quantization_version", std::uint32_t{2});
  general("alignment", std::uint32_t{32});
  if (!c.inflated_from.empty()) metadata.emplace_back("canopy.inflated_from", c.inflated_from);
  number("vocab_size", c.vocab);
  number("context_length", c.max_positions);
  number("embedding_length", c.dim);
  number("block_count", c.layers);
  number("feed_forward_length", c.hidden_dim);
  if (c.experts.count > 0) {
    number("expert_count", c.experts.count);
    number("expert_used_count", c.experts.active);
    number("expert_feed_forward_length", c.experts.hidden_dim);
    if (c.experts.shared_dim > 0 && c.experts.shared_switch)
      number("expert_shared_feed_forward_length", c.experts.shared_dim);
    else if (c.experts.shared_dim > 0)
      number("expert_shared_count", c.experts.shared_dim / c.experts.hidden_dim);
    if (family.leading_dense) number("leading_dense_block_count", dense);
    if (c.experts.score == RouterScore::kSigmoid) number("expert_gating_func", 2);
    if (family.gguf_weight_keys) {
      metadata.emplace_back(architecture + ".expert_weights_norm", c.experts.normalised);
      real("expert_weights_scale", static_cast<double>(c.experts.scale));
    }
  }
  if (c.recurrent())
    add_delta(model, family, metadata);
  else
    add_windows(model, family, metadata);
  add_factors(model, family, metadata);
  number("attention.head_count", c.heads);
  add_kv_heads(c, family, metadata);
  add_xielu(c, metadata);
  if (!c.layer(0).rotated && c.layer_kinds.size() == 1) {
    if (!family.gguf_rotation_switch)
      refuse_gguf(model, "have rotary positions, and this model none");
    metadata.emplace_back(architecture + ".rope.scaling.finetuned", false);
  }
  real(gguf_epsilon_key(family), static_cast<double>(c.norm_eps));
  number("rope.dimension_count", 2 * c.rope_inverse_frequency.size());

  const SourceRope rope = source_rope(model);
  const RopeScaling& s = rope.scaling;
  real("rope.freq_base", s.theta);
  if (rope.local_theta && *rope.local_theta != s.theta)
    real("rope.freq_base_swa", *rope.local_theta);
  if (!rope.frequency_factors.empty() && !family.gguf_frequency_factors)
    throw Error(model.root().string() +
                ": GGUF has no factors of rotary frequencies (of llama3 and proportional scaling) "
                "for " +
                architecture);
  const bool yarn = s.type == RopeScaling::Type::kYarn;
  if (s.query_beta != 0) {
    real("attention.temperature_scale", s.query_beta);
    if (!yarn) number("rope.scaling.original_context_length", s.query_period);
    if (yarn && s.query_period != s.original_positions)
      throw Error(model.root().string() +
                  ": GGUF has one original context length, for yarn and for queries that grow; "
                  "here they are " +
                  std::to_string(s.original_positions) + " and " + std::to_string(s.query_period));
  }
  if (s.type == RopeScaling::Type::kLongrope) {  // its factors are tensors
    number("rope.scaling.original_context_length", s.original_positions);
    real("rope.scaling.attn_factor", static_cast<double>(c.rope_magnitude));
  }
  if (!yarn && s.type != RopeScaling::Type::kLinear) return metadata;
  metadata.emplace_back(architecture + ".rope.scaling.type", std::string(yarn ? "yarn" : "linear"));
  real("rope.scaling.factor", s.factor);
  if (!yarn) return metadata;
  if (s.truncate != family.gguf_truncated_yarn)
    throw Error(model.root().string() + ": GGUF has no yarn scaling " +
                (s.truncate ? "with" : "without") + " 'truncate' for " + architecture);
  number("rope.scaling.original_context_length", s.original_positions);
  real("rope.scaling.yarn_beta_fast", s.beta_fast);
  real("rope.scaling.yarn_beta_slow", s.beta_slow);
  // The format multiplies its attn_factor by yarn's usual magnitude.
  const double usual = 1 + 0.1 * std::log(s.factor);
  const double factor = static_cast<double>(c.rope_magnitude) / usual;
  const double log_multiplier = s.mscale_all_dim.value_or(0);
  const double by_multiplier = 1 / (1 + 0.1 * log_multiplier * std::log(s.factor));
  if (family.scaled_queries && log_multiplier != 0 && s.mscale == 1 &&
      std::abs(factor - by_multiplier) <= 1e-6) {
    real("rope.scaling.yarn_log_multiplier", log_multiplier);
    return metadata;
  }
  if (std::abs(factor - 1) > 1e-6) real("rope.scaling.attn_factor", factor);
  return metadata;
}

}  // namespace canopy
