#include "src/convert/safetensors/hf_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/families/wrapper.h"
#include "src/convert/output.h"
#include "src/convert/quantize/source_rope.h"
#include "src/convert/source_files.h"

namespace canopy {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* kTied = "tie_word_embeddings";

/// Makes a config say that the head is not tied, where it says otherwise and the files hold another
/// head than the embedding. Whether it changed something.
bool untie(const Checkpoint& source, ordered_json& config) {
  const auto tied = config.find(kTied);
  if (source.config().tied_head || tied == config.end() || *tied != true) return false;
  *tied = false;
  return true;
}

ordered_json rope_json(const RopeScaling& s) {
  using Type = RopeScaling::Type;
  switch (s.type) {
    case Type::kDefault:
      return nullptr;
    case Type::kLinear:
      return {{"rope_type", "linear"}, {"factor", s.factor}};
    case Type::kLlama3:
      return {
          {"rope_type", "llama3"},
          {"factor", s.factor},
          {"low_freq_factor", s.low_freq_factor},
          {"high_freq_factor", s.high_freq_factor},
          {"original_max_position_embeddings", static_cast<std::int64_t>(s.original_positions)}};
    case Type::kLongrope:
    case Type::kProportional:
      throw Error("longrope and proportional positions cannot be written from GGUF");
    case Type::kYarn:
      break;
  }
  return {{"rope_type", "yarn"},
          {"factor", s.factor},
          {"original_max_position_embeddings", static_cast<std::int64_t>(s.original_positions)},
          {"beta_fast", s.beta_fast},
          {"beta_slow", s.beta_slow},
          {"attention_factor", s.attention_factor.value_or(1.0)}};
}

void set_token_ids(const Checkpoint& gguf, ordered_json& json) {
  for (const auto& [key, from] : {std::pair{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                  std::pair{"pad_token_id", "tokenizer.ggml.padding_token_id"}})
    if (const auto* id = gguf.metadata().find<std::int64_t>(from)) json[key] = *id;
  const std::vector<TokenId>& end = gguf.config().end_tokens;
  if (end.size() == 1)
    json["eos_token_id"] = end[0];
  else if (!end.empty())
    json["eos_token_id"] = end;
}

/// Throws Error where a config.json of the family says more than config_from_gguf() writes.
void require_plain_config(const Checkpoint& gguf) {
  const ModelConfig& c = gguf.config();
  const Family& family = family_of(c);
  if (c.form == DecoderForm() && c.factors == DecoderFactors() && c.layer_kinds.size() == 1 &&
      c.layer(0).window == 0 && family.fused.empty() && !family.adjacent_pairs)
    return;
  throw Error(gguf.root().string() + ": Canopy writes no config.json of a " + c.architecture +
              " model from GGUF; use the model's Hugging Face directory");
}

ordered_json config_from_gguf(const Checkpoint& gguf) {
  const ModelConfig& c = gguf.config();
  if (c.experts.count == 0) require_plain_config(gguf);
  const SourceRope rope = source_rope(gguf);
  if (!rope.frequency_factors.empty() && rope.scaling.type != RopeScaling::Type::kLlama3)
    throw Error(gguf.root().string() +
                ": tensor rope_freqs.weight is none of the scalings that config.json can express; "
                "use the model's Hugging Face directory");
  const std::string class_name(family_of(c).hf_class);
  ordered_json json{{"architectures", {class_name}}, {"model_type", c.architecture}};
  set_token_ids(gguf, json);
  json["hidden_act"] = "silu";
  json["vocab_size"] = c.vocab;
  json["max_position_embeddings"] = c.max_positions;
  json["rope_theta"] = rope.scaling.theta;
  ordered_json scaling = rope_json(rope.scaling);
  if (family_of(c).scaled_queries) {
    if (scaling.is_null()) scaling["rope_type"] = "default";
    scaling["llama_4_scaling_beta"] = c.query_beta;
    scaling["original_max_position_embeddings"] = c.query_period;
  }
  json["rope_scaling"] = scaling;
  json[kTied] = c.tied_head;
  json["attention_bias"] = family_of(c).own_attention_bias && c.layer(0).qkv_bias;
  json["attention_dropout"] = 0.0;
  json["initializer_range"] = 0.02;
  json["use_cache"] = true;
  return json;
}

/// The config of a directory's model of text, though the file be that of a model around it.
ordered_json text_config_of(const Checkpoint& source, const ordered_json& file) {
  if (!is_wrapped(file)) return file;
  ordered_json text = text_config(file);
  text[kTied] = source.config().tied_head;
  return text;
}

ordered_json config_json(const Checkpoint& source, const ModelConfig& target) {
  ordered_json json;
  if (fs::is_directory(source.root()))
    json = text_config_of(
        source, parse_ordered_json(with_quoted_literals(read_file(
                    source.root() / "config.json", kMostConfigBytes, FileKind::kOfModel))));
  else
    json = config_from_gguf(source);
  json["hidden_size"] = target.dim;
  json["intermediate_size"] = target.hidden_dim;
  json["num_hidden_layers"] = target.layers;
  json["num_attention_heads"] = target.heads;
  json["num_key_value_heads"] = target.kv_heads;
  json["head_dim"] = target.head_dim;
  // The double that is exactly the float: other readers then halve and quarter it without rounding.
  json["rms_norm_eps"] = static_cast<double>(target.norm_eps);
  if (target.experts.count > 0 && target.architecture != source.config().architecture) {
    json["architectures"] = {family_of(target).hf_class};
    json["model_type"] = target.architecture;
    json["num_local_experts"] = target.experts.count;
    json["num_experts_per_tok"] = target.experts.active;
    json["sliding_window"] = nullptr;
  }
  if (json.contains("layer_types"))
    json["layer_types"] =
        std::vector<std::string>(static_cast<std::size_t>(target.layers), "full_attention");
  for (const char* key : {"auto_map", "num_layers", "layer_norm_epsilon"})  // EXAONE's names of two
    json.erase(key);
  untie(source, json);
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = "bfloat16";
  return json;
}

/// Files of the model's text side, where they are there.
constexpr std::array kCopied{"tokenizer.json",
                             "tokenizer_config.json",
                             "special_tokens_map.json",
                             "added_tokens.json",
                             "vocab.json",
                             "merges.txt",
                             "tokenizer.model",
                             "tekken.json",
                             "chat_template.jinja",
                             "chat_template.json",
                             "generation_config.json"};

void copy_files(const Checkpoint& source, const fs::path& directory) {
  for (const char* name : kCopied)
    if (fs::exists(source.root() / name))
      write_text_file(directory / name,
                      read_file(source.root() / name, kMostTokenizerBytes, FileKind::kOfModel));
}

}  // namespace

void copy_hf_files(const Checkpoint& source, const fs::path& directory) {
  if (!fs::is_directory(source.root()))
    return write_hf_files(source, source.config(), std::nullopt, directory);
  std::string config =
      read_file(source.root() / "config.json", kMostConfigBytes, FileKind::kOfModel);
  const ordered_json whole = parse_ordered_json(with_quoted_literals(config));
  ordered_json json = text_config_of(source, whole);
  // A scheme says how values that lie otherwise are stored.
  if (std::ranges::any_of(source.tensors(), [](const auto& t) { return t.parts != nullptr; }))
    for (const char* key : {"quantization_config", "compression_config"}) json.erase(key);
  if (untie(source, json) || json != whole) config = json.dump(2) + "\n";
  write_text_file(directory / "config.json", config);
  copy_files(source, directory);
}

void write_hf_files(const Checkpoint& source, const ModelConfig& target,
                    const std::optional<InflationLabel>& label, const fs::path& directory) {
  ordered_json config = config_json(source, target);
  config.erase("canopy_inflated");
  if (label)
    config["canopy_inflated"] = {{"from", label->from},       {"source", label->source},
                                 {"widen", label->widen},     {"layers", label->layers},
                                 {"experts", label->experts}, {"seed", label->seed}};
  write_text_file(directory / "config.json", config.dump(2) + "\n");
  if (fs::is_directory(source.root())) return copy_files(source, directory);
  ordered_json generation = ordered_json::object();
  set_token_ids(source, generation);
  write_text_file(directory / "generation_config.json", generation.dump(2) + "\n");
  write_tokenizer_files(source.metadata(), directory);
}

}  // namespace canopy
