#include "src/chat/template_sources.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/jinja/limits.h"

namespace canopy::chat {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// One entry of a list of named templates.
void add_named(const json& entry, TemplateSources& out) {
  const auto text = [&](const char* key) -> const std::string& {
    if (!entry.is_object() || !entry.contains(key) || !entry[key].is_string())
      throw Error(std::string("an entry of 'chat_template' has no text '") + key + "'");
    return entry[key].get_ref<const std::string&>();
  };
  out.by_name.insert_or_assign(text("name"), text("template"));
}

/// `chat_template` of a tokenizer_config.json: a text, or a list of {"name", "template"}.
void read_templates(const json& config, TemplateSources& out) {
  const auto at = config.find("chat_template");
  if (at == config.end() || at->is_null()) return;
  if (at->is_string()) {
    out.by_name["default"] = at->get<std::string>();
  } else if (at->is_array()) {
    for (const json& entry : *at) add_named(entry, out);
  } else {
    throw Error("'chat_template' is neither a text nor a list");
  }
}

/// Members that name a token, as a text or as {"content": text}; those that are there stay.
void read_special_tokens(const json& config, TemplateSources& out) {
  for (const auto& [key, value] : config.items()) {
    const json* text = &value;
    if (value.is_object() && value.contains("content")) text = &value["content"];
    if (key.ends_with("_token") && text->is_string() && !out.special_tokens.contains(key))
      out.special_tokens[key] = text->get<std::string>();
  }
}

/// Reads chat_template.jinja, and tool_use.jinja of the directory next to it.
void read_template_files(const fs::path& directory, TemplateSources& out) {
  const fs::path main = directory / "chat_template.jinja";
  out.searched.push_back(main.string());
  if (fs::exists(main))
    out.by_name["default"] = read_file(main, jinja::kMostSourceBytes, FileKind::kOfModel);
  const fs::path named = directory / "additional_chat_templates" / "tool_use.jinja";
  out.searched.push_back(named.string());
  if (fs::exists(named))
    out.by_name["tool_use"] = read_file(named, jinja::kMostSourceBytes, FileKind::kOfModel);
}

/// The texts that tekken.json, where it is the tokenizer, has for them in every file.
void name_tekken_tokens(const fs::path& directory, TemplateSources& out) {
  if (fs::exists(directory / "tokenizer.json") || !fs::exists(directory / "tekken.json")) return;
  for (const auto& [key, text] : {std::pair{"bos_token", "<s>"}, std::pair{"eos_token", "</s>"}})
    if (!out.special_tokens.contains(key)) out.special_tokens[key] = text;
}

}  // namespace

TemplateSources sources_of_directory(const fs::path& directory) {
  TemplateSources out;
  read_template_files(directory, out);
  if (!out.by_name.empty()) out.origin = (directory / "chat_template.jinja").string();
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path file = directory / name;
    const bool has_templates = std::string_view(name) == "tokenizer_config.json";
    if (has_templates) out.searched.push_back(file.string());
    if (!fs::exists(file)) continue;
    const json config = read_json(file, kMostConfigBytes, FileKind::kOfModel);
    in_context("reading " + file.string(), [&] {
      if (!config.is_object()) throw Error("it is not a JSON object");
      if (has_templates && out.by_name.empty()) {
        read_templates(config, out);
        out.origin = file.string();
      }
      read_special_tokens(config, out);
    });
  }
  name_tekken_tokens(directory, out);
  return out;
}

TemplateSources sources_of_gguf(const fs::path& file, const Metadata& metadata) {
  TemplateSources out;
  const std::string key = "tokenizer.chat_template";
  out.origin = file.string() + ", " + key;
  out.searched.push_back(out.origin);
  if (const auto* text = metadata.find<std::string>(key)) out.by_name["default"] = *text;
  if (const auto* names = metadata.find<std::vector<std::string>>(key + "s"))
    for (const std::string& name : *names)
      if (const auto* text = metadata.find<std::string>(key + "." + name))
        out.by_name[name] = *text;
  const auto* tokens = metadata.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  if (!tokens) return out;
  // "seperator" is the format's own spelling.
  for (const auto& [theirs, ours] :
       {std::pair{"bos", "bos_token"}, std::pair{"eos", "eos_token"},
        std::pair{"unknown", "unk_token"}, std::pair{"seperator", "sep_token"},
        std::pair{"padding", "pad_token"}}) {
    const std::string id_key = std::string("tokenizer.ggml.") + theirs + "_token_id";
    const auto* id = metadata.find<std::int64_t>(id_key);
    if (!id) continue;
    if (*id < 0 || *id >= static_cast<std::int64_t>(tokens->size()))
      throw Error(id_key + " is " + std::to_string(*id) + ", but there are " +
                  std::to_string(tokens->size()) + " tokens");
    out.special_tokens[ours] = to_utf8((*tokens)[static_cast<std::size_t>(*id)]);
  }
  return out;
}

}  // namespace canopy::chat
