#include "src/convert/quantize/source_rope.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/families.h"

namespace canopy {

namespace {

/// Numbers and words of the metadata under the first of several keys that is there.
class Keys {
 public:
  explicit Keys(const Metadata& metadata) : metadata_(&metadata) {}
  std::optional<double> number(std::initializer_list<std::string> keys) const {
    for (const std::string& key : keys) {
      if (const auto* value = metadata_->find<double>(key)) return *value;
      if (const auto* value = metadata_->find<std::int64_t>(key))
        return static_cast<double>(*value);
    }
    return {};
  }
  std::string text(std::initializer_list<std::string> keys, const char* otherwise) const {
    for (const std::string& key : keys)
      if (const auto* value = metadata_->find<std::string>(key)) return *value;
    return otherwise;
  }
  const bool* flag(const std::string& key) const { return metadata_->find<bool>(key); }

 private:
  const Metadata* metadata_;
};

using Type = RopeScaling::Type;

Type type_named(const std::string& name) {
  if (name == "none" || name == "default" || name == "dynamic") return Type::kDefault;
  if (name == "linear") return Type::kLinear;
  if (name == "llama3") return Type::kLlama3;
  if (name == "yarn") return Type::kYarn;
  if (name == "proportional") return Type::kProportional;
  throw Error("rotary scaling of type " + in_quotes(name) + " cannot be written");
}

RopeScaling from_hf(const Keys& keys, const Family& family, int max_positions, int head_dim) {
  const auto number = [&](const std::string& key, double otherwise) {
    return keys
        .number({"rope_parameters.full_attention." + key, "rope_parameters." + key,
                 "rope_scaling." + key})
        .value_or(otherwise);
  };
  RopeScaling s;
  s.type =
      type_named(keys.text({"rope_parameters.full_attention.rope_type", "rope_parameters.rope_type",
                            "rope_parameters.type", "rope_scaling.rope_type", "rope_scaling.type"},
                           "default"));
  s.theta = keys.number({"rope_parameters.full_attention.rope_theta", "rope_parameters.rope_theta",
                         "rope_scaling.rope_theta", "rope_theta"})
                .value_or(family.theta);
  // The only dynamic scaling that is read is a larger base.
  if (const double alpha = number("alpha", 0); alpha != 0)
    s.theta = ntk_theta(s.theta, alpha, head_dim);
  s.original_positions = keys.number({"original_max_position_embeddings"})
                             .value_or(number("original_max_position_embeddings", max_positions));
  s.factor = number("factor", s.type == Type::kYarn ? max_positions / s.original_positions : 1.0);
  s.low_freq_factor = number("low_freq_factor", s.low_freq_factor);
  s.high_freq_factor = number("high_freq_factor", s.high_freq_factor);
  s.beta_fast = number("beta_fast", s.beta_fast);
  s.beta_slow = number("beta_slow", s.beta_slow);
  s.mscale = number("mscale", 0);
  s.mscale_all_dim = number("mscale_all_dim", 0);
  for (const char* object :
       {"rope_parameters.full_attention.", "rope_parameters.", "rope_scaling."})
    if (const bool* truncate = keys.flag(std::string(object) + "truncate")) s.truncate = *truncate;
  return s;
}

RopeScaling from_gguf(const Keys& keys, const Family& family, int max_positions) {
  const std::string rope = std::string(family.gguf) + ".rope.";
  RopeScaling s;
  s.truncate = family.gguf_truncated_yarn;
  s.theta = keys.number({rope + "freq_base"}).value_or(family.theta);
  s.factor = keys.number({rope + "scaling.factor", rope + "scale_linear"}).value_or(1.0);
  s.type = type_named(keys.text({rope + "scaling.type"}, s.factor == 1 ? "none" : "linear"));
  s.original_positions =
      keys.number({rope + "scaling.original_context_length"}).value_or(max_positions);
  s.beta_fast = keys.number({rope + "scaling.yarn_beta_fast"}).value_or(s.beta_fast);
  s.beta_slow = keys.number({rope + "scaling.yarn_beta_slow"}).value_or(s.beta_slow);
  s.mscale = 1;
  s.mscale_all_dim = keys.number({rope + "scaling.yarn_log_multiplier"}).value_or(0);
  return s;
}

bool close(const std::vector<float>& a, const std::vector<float>& b) {
  // Both come from the same formula in f32 with one division more or less.
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return std::abs(x - y) <= 1e-6f * std::abs(y); });
}

/// Finds the factors of a longrope from the frequencies that they have led to.
RopeScaling longrope_of(const Keys& keys, const ModelConfig& config) {
  RopeScaling s;
  s.theta = keys.number({"rope_parameters.rope_theta", "rope_scaling.rope_theta", "rope_theta",
                         std::string(family_of(config).gguf) + ".rope.freq_base"})
                .value_or(family_of(config).theta);
  s.rotary_dim = static_cast<int>(2 * config.rope_inverse_frequency.size());
  const std::vector<float> plain = rope_table(s, config.head_dim).inverse_frequency;
  const auto factors = [&](const std::vector<float>& actual) {
    std::vector<float> all;
    for (std::size_t i = 0; i < actual.size(); ++i) all.push_back(plain[i] / actual[i]);
    return all;
  };
  s.type = Type::kLongrope;
  s.short_factors = factors(config.rope_inverse_frequency);
  s.long_factors = factors(config.rope_long_frequency);
  s.original_positions = config.rope_original;
  s.attention_factor = config.rope_magnitude;
  return s;
}

/// Finds the base of the frequencies that layers with windows have for themselves.
void put_local_theta(const Keys& keys, const ModelConfig& config, SourceRope& rope) {
  const Family& family = family_of(config);
  if (family.local_theta == 0) return;
  RopeScaling local;
  local.theta =
      keys.number({"rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq",
                   std::string(family.gguf) + ".rope.freq_base_swa"})
          .value_or(family.local_theta == family.theta ? rope.scaling.theta : family.local_theta);
  if (!close(rope_table(local, config.head_dim_of(config.layer_kinds.front())).inverse_frequency,
             config.rope_of_kind.at(0)))
    throw Error("the rotary frequencies of layers with windows are not understood");
  rope.local_theta = local.theta;
}

}  // namespace

SourceRope source_rope(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  const Keys keys(checkpoint.metadata());
  const bool hf = std::filesystem::is_directory(checkpoint.root());
  SourceRope rope;
  if (!config.rope_long_frequency.empty()) return {longrope_of(keys, config), {}};
  rope.scaling = hf ? from_hf(keys, family_of(config), config.max_positions, config.head_dim)
                    : from_gguf(keys, family_of(config), config.max_positions);
  RopeScaling& scaling = rope.scaling;
  scaling.query_beta = static_cast<double>(config.query_beta);
  scaling.query_period = config.query_period;
  scaling.rotary_dim = static_cast<int>(2 * config.rope_inverse_frequency.size());
  if (scaling.type == Type::kYarn) scaling.attention_factor = config.rope_magnitude;

  put_local_theta(keys, config, rope);
  const std::vector<float>& actual = config.rope_inverse_frequency;
  const int head_dim = config.head_dim_of(config.layer_kinds.back());
  const auto default_table = [&] {
    RopeScaling plain = scaling;
    if (plain.type == Type::kLlama3 || plain.type == Type::kProportional)
      plain.type = Type::kDefault;
    return rope_table(plain, head_dim).inverse_frequency;
  }();
  if (close(default_table, actual)) return rope;
  if (scaling.type != Type::kLlama3 && scaling.type != Type::kProportional &&
      (hf || scaling.type != Type::kDefault))
    throw Error(checkpoint.root().string() + ": the rotary frequencies are not understood");
  constexpr float kStays = 1e30f;  // what converters write for a pair that is not rotated
  for (std::size_t i = 0; i < actual.size(); ++i)
    rope.frequency_factors.push_back(actual[i] == 0 ? kStays : default_table[i] / actual[i]);
  if (hf) return rope;

  // llama3 divides the lowest frequencies by its whole factor; the context length before scaling is
  // a power of two. Whatever else was tuned is not recognised.
  RopeScaling llama3 = scaling;
  llama3.type = Type::kLlama3;
  llama3.factor = std::round(rope.frequency_factors.back());
  if (llama3.factor < 1) return rope;
  for (int positions = 256; positions <= 1 << 17; positions *= 2) {
    llama3.original_positions = positions;
    if (!close(rope_table(llama3, head_dim).inverse_frequency, actual)) continue;
    scaling = llama3;
    break;
  }
  return rope;
}

}  // namespace canopy
