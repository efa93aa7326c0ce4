// Models of text inside models that also see or hear: the config lies under text_config, the
// tensors under a prefix, and those of the other parts next to them.
#include "src/checkpoint/families/wrapper.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/model_tensors.h"

namespace canopy {

namespace {

using nlohmann::json;

struct Wrapper {
  std::string_view name;      // model_type of config.json
  std::string_view hf_class;  // in the architectures of config.json
};
constexpr std::array kWrappers{
    Wrapper{"gemma3", "Gemma3ForConditionalGeneration"},
    Wrapper{"gemma4", "Gemma4ForConditionalGeneration"},
    Wrapper{"gemma4_unified", "Gemma4UnifiedForConditionalGeneration"},
    Wrapper{"mistral3", "Mistral3ForConditionalGeneration"},
    Wrapper{"qwen3_5", "Qwen3_5ForConditionalGeneration"},
    Wrapper{"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration"},
};

/// Keys that a wrapper may give for the text model that it holds.
constexpr std::array kForText{"eos_token_id", "quantization_config", "compression_config",
                              "quantization"};

/// Names that files give the parts of the text model, in older and newer versions of the libraries.
constexpr auto kPrefixes = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"language_model.model.", "model."},
     {"language_model.lm_head.", "lm_head."},
     {"model.language_model.", "model."}});
constexpr std::array<std::string_view, 9> kOtherParts{
    "vision_tower", "vision_model", "vision_adapter", "vision_projection",    "visual",
    "audio_tower",  "embed_vision", "embed_audio",    "multi_modal_projector"};

const Wrapper* wrapper_of(const json& config) {
  if (!config.is_object()) return nullptr;
  const auto type = config.find("model_type");
  const auto at = std::find_if(kWrappers.begin(), kWrappers.end(), [&](const Wrapper& wrapper) {
    return type != config.end() && *type == wrapper.name;
  });
  return at == kWrappers.end() ? nullptr : &*at;
}

/// Returns the part, other than the text model, that a tensor belongs to; "" if it belongs to none.
std::string_view other_part(std::string_view tensor) {
  constexpr std::string_view kModel = "model.";
  if (tensor.starts_with(kModel)) tensor.remove_prefix(kModel.size());
  const std::string_view first = tensor.substr(0, tensor.find('.'));
  const auto at = std::find(kOtherParts.begin(), kOtherParts.end(), first);
  return at == kOtherParts.end() ? "" : *at;
}

struct Part {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
};

}  // namespace

std::string unwrapped_name(const std::string& name) {
  const std::string with_dot = name + '.';  // a module may be a prefix without its dot
  for (const auto& [prefix, plain] : kPrefixes)
    if (with_dot.starts_with(prefix)) {
      std::string rest = std::string(plain) + with_dot.substr(prefix.size());
      rest.pop_back();
      return rest;
    }
  return name;
}

bool is_wrapped(const json& config) { return wrapper_of(config) != nullptr; }

json text_config(json config) {
  const Wrapper* const wrapper = wrapper_of(config);
  if (!wrapper) return config;
  const Fields fields(config);
  require_class(fields, wrapper->hf_class);
  const json* const inside = fields.find("text_config");
  if (!inside) throw Error("key 'text_config' is missing");
  json text = *inside;
  Fields(text, "text_config");  // throws if it is no object
  for (const char* key : kForText)
    if (const json* outside = fields.find(key); outside && !Fields(text).find(key))
      text[key] = *outside;
  return text;
}

void unwrap_tensors(const json& wrapper, TensorIndex& index, ModelConfig& config) {
  std::map<std::string_view, Part> left_out;
  std::erase_if(index.tensors, [&](const TensorEntry& tensor) {
    const std::string_view name = other_part(tensor.name);
    if (name.empty()) return false;
    ++left_out[name].tensors;
    left_out[name].bytes += tensor.bytes;
    return true;
  });
  for (TensorEntry& tensor : index.tensors) tensor.name = unwrapped_name(tensor.name);
  std::string parts;
  for (const auto& [name, part] : left_out)
    parts.append(parts.empty() ? "" : ", ")
        .append(name)
        .append(" (" + std::to_string(part.tensors) +
                (part.tensors == 1 ? " tensor, " : " tensors, ") + format_size(part.bytes) + ")");
  if (!parts.empty())
    add_note(config.notes, "the model is run for text alone; of its files is left out: " + parts);

  // transformers ties by the flag outside, which is true where it is missing, and leaves a head
  // that is stored and differs.
  const auto is_head = [](const TensorEntry& tensor) {
    return tensor.name == tensor_name(TensorRole::kHead);
  };
  const bool stored = std::any_of(index.tensors.begin(), index.tensors.end(), is_head);
  config.tied_head = Fields(wrapper).flag("tie_word_embeddings", config.tied_head || !stored);
}

}  // namespace canopy
