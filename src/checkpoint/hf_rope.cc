// Rotary positions of a config.json.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/rope_scaling.h"

namespace canopy {

namespace {

using nlohmann::json;

constexpr std::array kLayerTypes{"full_attention", "sliding_attention"};

/// Reads how many dimensions of each head are rotated.
int read_rotary_dim(const Fields& config, const Fields& rope, int head_dim, const Family& family) {
  const char* const key = "partial_rotary_factor";
  std::optional<double> share = rope.number(key);
  if (!share) share = config.number(key);
  if (share && !(*share > 0 && *share <= 1))
    throw Error("key " + config.name(key) + " is " + shown(*share) + ", no share of a head");
  const int by_share = static_cast<int>(head_dim * share.value_or(family.rotated));
  const int dim = config.integer("rotary_dim", head_dim, by_share);
  if (share && dim != by_share)
    throw Error("keys " + config.name("rotary_dim") + " (" + std::to_string(dim) + ") and " +
                config.name(key) + " (" + shown(*share) + " of " + std::to_string(head_dim) +
                ") differ: keep the one that is meant");
  if (dim < 2 || dim % 2 != 0)
    throw Error("keys " + config.name(key) + " and " + config.name("rotary_dim") + " rotate " +
                std::to_string(dim) + " of " + std::to_string(head_dim) +
                " dimensions, which are no pairs");
  return dim;
}

/// Reads factors of the pairs of a longrope.
std::vector<float> read_factors(const Fields& rope, const char* key) {
  const json* const factors = rope.find(key);
  if (!factors || !factors->is_array() ||
      !std::all_of(factors->begin(), factors->end(),
                   [](const json& factor) { return factor.is_number() && factor > 0; }))
    throw Error("key " + rope.name(key) + " is not a list of positive numbers");
  return factors->get<std::vector<float>>();
}

RopeScaling read_longrope(const Fields& config, const Fields& rope, int max_positions,
                          RopeScaling s) {
  s.type = RopeScaling::Type::kLongrope;
  s.original_positions =
      config.integer("original_max_position_embeddings", kMostPositions,
                     rope.integer("original_max_position_embeddings", kMostPositions, 4096));
  s.factor = rope.positive("factor", max_positions / s.original_positions);
  s.attention_factor = rope.number("attention_factor");
  s.short_factors = read_factors(rope, "short_factor");
  s.long_factors = read_factors(rope, "long_factor");
  return s;
}

/// Reads how much of each head is rotated by pairs of the whole head.
RopeScaling read_proportional(const Fields& config, const Fields& rope, int head_dim,
                              RopeScaling s) {
  const char* const key = "partial_rotary_factor";
  s.type = RopeScaling::Type::kProportional;
  const double share = rope.positive(key, config.positive(key, 1.0));
  s.rotary_dim = 2 * static_cast<int>(head_dim * share / 2);
  if (share > 1 || s.rotary_dim < 2)
    throw Error("key " + rope.name(key) + " is " + std::to_string(share) +
                ", no share of a head of " + std::to_string(head_dim) + " with a pair");
  s.factor = rope.positive("factor", 1.0);
  return s;
}

/// Reads one object of rotary parameters, with the keys that may stand outside it. `head_dim`: of
/// the layers that it is for.
RopeScaling read_rope(const Fields& config, const Fields& rope, const ModelConfig& model,
                      int head_dim, const Family& family) {
  const int max_positions = model.max_positions;
  using Type = RopeScaling::Type;
  RopeScaling s;
  for (const char* layer_type : kLayerTypes)
    if (rope.find(layer_type))
      refuse_config("rotary positions that differ by layer (key " + rope.name(layer_type) + ")");
  s.theta = rope.positive("rope_theta", config.positive("rope_theta", family.theta));
  const std::string type = rope.text("rope_type", rope.text("type", "default").c_str());
  if (type == "proportional") return read_proportional(config, rope, head_dim, std::move(s));
  for (const Fields* fields : {&rope, &config})
    if (family.rotated == 0 && fields->number("partial_rotary_factor").value_or(1) != 1)
      refuse_config("a partial rotary embedding (key " + fields->name("partial_rotary_factor") +
                    ")");
  if (family.rotated != 0) s.rotary_dim = read_rotary_dim(config, rope, head_dim, family);

  s.query_beta = rope.number("llama_4_scaling_beta").value_or(0);
  if (s.query_beta != 0) {
    if (!family.scaled_queries)
      refuse_config("queries scaled by their position (key " + rope.name("llama_4_scaling_beta") +
                    ")");
    s.query_period = rope.integer("original_max_position_embeddings", kMostPositions);
  }

  if (type == "default") return s;
  if (family.longrope && (type == "longrope" || type == "su" || type == "yarn"))
    return read_longrope(config, rope, max_positions, std::move(s));
  if (type == "linear")
    s.type = Type::kLinear;
  else if (type == "llama3")
    s.type = Type::kLlama3;
  else if (type == "yarn")
    s.type = Type::kYarn;
  else
    throw Error("rotary scaling of type " + in_quotes(type) +
                " is not supported; Canopy knows default, linear, llama3, yarn and proportional" +
                (family.longrope ? ", and longrope" : ""));
  if (s.type != Type::kLinear)
    s.original_positions = config.positive(
        "original_max_position_embeddings",
        rope.positive("original_max_position_embeddings", static_cast<double>(max_positions)));
  if (s.type == Type::kYarn && rope.given("factor") && !rope.find("factor"))
    s.factor = max_positions / s.original_positions;  // a null factor, as transformers reads it
  else
    s.factor = rope.positive("factor");
  if (s.type == Type::kLlama3) {
    s.low_freq_factor = rope.positive("low_freq_factor");
    s.high_freq_factor = rope.positive("high_freq_factor");
    if (s.high_freq_factor <= s.low_freq_factor)
      throw Error("key " + rope.name("high_freq_factor") + " does not exceed 'low_freq_factor'");
  }
  if (s.type == Type::kYarn) {
    s.attention_factor = rope.number("attention_factor");
    s.mscale = rope.number("mscale");
    s.mscale_all_dim = rope.number("mscale_all_dim");
    const auto or_default = [](double value, double otherwise) {
      return value == 0 ? otherwise : value;
    };
    s.beta_fast = or_default(rope.number("beta_fast").value_or(0), 32);
    s.beta_slow = or_default(rope.number("beta_slow").value_or(0), 1);
    s.truncate = rope.flag("truncate", true);
  }
  return s;
}

/// The rotary parameters under either generation's key. transformers takes the older one where both
/// are there, and nothing of the newer one with it; what the files mean then is a guess.
RopeScaling rope_scaling(const Fields& config, const ModelConfig& model, int head_dim,
                         const Family& family) {
  std::optional<RopeScaling> result;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* given = config.find(key);
    if (!given || *given == json::object()) continue;
    const RopeScaling read = read_rope(config, Fields(*given, key), model, head_dim, family);
    if (result && read != *result)
      throw Error("keys 'rope_scaling' (" + shown(*config.find("rope_scaling")) +
                  ") and 'rope_parameters' (" + shown(*given) +
                  ") mean different rotary positions: keep the one that is meant, with its "
                  "'rope_theta', and remove the other");
    result = read;
  }
  const json empty = json::object();
  return result ? *result
                : read_rope(config, Fields(empty, "rope_parameters"), model, head_dim, family);
}

/// Reads the rotary parameters of layers that see all keys, or of those with a window, where a
/// config may have either under a key of its own.
RopeScaling rope_of_layers(const Fields& config, const ModelConfig& model, const Family& family,
                           bool windowed) {
  const int head_dim =
      model.head_dim_of(windowed ? model.layer_kinds.front() : model.layer_kinds.back());
  const json empty = json::object();
  const json* const nested = config.find("rope_parameters");
  const bool by_type =
      nested && std::any_of(kLayerTypes.begin(), kLayerTypes.end(),
                            [&](const char* type) { return nested->contains(type); });
  if (by_type && config.find("rope_scaling"))
    throw Error("keys 'rope_scaling' and 'rope_parameters' both say how layers rotate: keep one");
  if (by_type) {
    const Fields each(*nested, "rope_parameters");
    const char* const type = windowed ? "sliding_attention" : "full_attention";
    json own = each.find(type) ? *each.find(type) : empty;
    Fields(own, each.name(type));  // throws if it is no object
    if (!own.contains("rope_theta"))
      own["rope_theta"] = windowed ? family.local_theta : family.theta;
    return read_rope(Fields(empty), Fields(own, "rope_parameters." + std::string(type)), model,
                     head_dim, family);
  }
  if (!windowed) return rope_scaling(config, model, head_dim, family);
  RopeScaling plain;
  // A file says the base once if both have the same.
  plain.theta = family.local_theta == family.theta
                    ? rope_scaling(config, model, head_dim, family).theta
                    : config.positive("rope_local_base_freq", family.local_theta);
  return plain;
}

}  // namespace

void put_rope(const Fields& config, const Family& family, ModelConfig& model) {
  if (family.local_theta == 0) {
    put_rope(rope_scaling(config, model, model.head_dim_of(model.layer_kinds.back()), family),
             model);
    return;
  }
  const RopeScaling full = rope_of_layers(config, model, family, false);
  const RopeScaling windowed = rope_of_layers(config, model, family, true);
  put_rope(full, model);
  put_local_rope(windowed, model);
}

}  // namespace canopy
