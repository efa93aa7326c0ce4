// The config.json of decoders with layer norms and biases: OPT and BLOOM.
#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/families/alibi.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

/// A switch that must stand as it does in the models that Canopy runs.
struct Switch {
  const char* key;
  bool wanted;
  const char* otherwise;  // what the other setting means
};

void check_switches(const Fields& config, std::initializer_list<Switch> switches) {
  for (const Switch& s : switches)
    if (config.flag(s.key, s.wanted) != s.wanted)
      refuse_config(std::string(s.otherwise) + " (key " + config.name(s.key) + ")");
}

}  // namespace

ModelConfig read_opt_config(const nlohmann::json& json, const Family& family) {
  const Fields config(json);
  ModelConfig model = read_sizes(config, family, {.hidden_dim = "ffn_dim", .tied_head = true});
  model.form.norm_after = !config.flag("do_layer_norm_before", true);
  check_switches(config, {{"enable_bias", true, "a decoder of this kind without biases"},
                          {"layer_norm_elementwise_affine", true, "a layer norm without weights"}});
  if (!model.form.norm_after)  // which has no final norm anyway
    check_switches(config, {{"_remove_final_layer_norm", false, "a decoder without a final norm"}});
  const int width = config.integer("word_embed_proj_dim", kMostDim, model.dim);
  if (width != model.dim) model.embedding_dim = width;
  if (const std::string act = config.text("activation_function", "relu"); act != "relu")
    refuse_config("the activation " + in_quotes(act) + " (key 'activation_function')");
  model.norm_eps = 1e-5f;  // no key gives it
  return model;
}

ModelConfig read_bloom_config(const nlohmann::json& json, const Family& family) {
  const Fields config(json);
  const auto either = [&](const char* key, const char* other) {
    const nlohmann::json *const one = config.find(key), *const two = config.find(other);
    if (one && two && *one != *two)
      throw Error("keys " + config.name(key) + " (" + one->dump() + ") and " + config.name(other) +
                  " (" + two->dump() + ") differ: keep the one that is meant");
    return one || !two ? key : other;
  };
  ModelConfig model = read_sizes(config, family,
                                 {.layers = either("n_layer", "num_hidden_layers"),
                                  .dim = either("n_embed", "hidden_size"),
                                  .hidden_dim = nullptr,
                                  .heads = either("n_head", "num_attention_heads"),
                                  .positions = "seq_length",
                                  .max_positions = 2048,
                                  .tied_head = true});
  check_switches(config, {{"apply_residual_connection_post_layernorm", false,
                           "a residual stream of normalised values"},
                          {"slow_but_exact", false, "the arithmetic of a cluster"}});
  model.norm_eps = static_cast<float>(config.positive("layer_norm_epsilon", 1e-5));
  model.alibi_slopes = alibi_slopes(model.heads);
  return model;
}

}  // namespace canopy
