// A tokenizer as GGUF metadata.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/convert/gguf/gguf_metadata.h"
#include "src/convert/gguf/pre_tokenizers.h"
#include "src/convert/gguf/tokenizer_parts.h"
#include "src/convert/source_files.h"
#include "src/text/tokenizer.h"

namespace canopy {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

GgufMetadata copied(const Metadata& source) {
  GgufMetadata result;
  const auto take = [&]<class T>(std::initializer_list<const char*> keys, T*) {
    for (const char* key : keys)
      if (const T* value = source.find<T>(key)) result.emplace_back(key, *value);
  };
  take({"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.chat_template"},
       static_cast<std::string*>(nullptr));
  take({"tokenizer.ggml.tokens", "tokenizer.ggml.merges"},
       static_cast<std::vector<std::string>*>(nullptr));
  take({"tokenizer.ggml.scores"}, static_cast<std::vector<float>*>(nullptr));
  take({"tokenizer.ggml.token_type"}, static_cast<std::vector<std::int32_t>*>(nullptr));
  take({"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token",
        "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.remove_extra_whitespaces"},
       static_cast<bool*>(nullptr));
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "seperator", "padding"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    if (const auto* id = source.find<std::int64_t>(key))
      result.emplace_back(key, static_cast<std::uint32_t>(*id));
  }
  return result;
}

void read_template(const json& part, TemplateTokens& found) {
  if (!part.is_object()) return;
  const std::string type = part.value("type", "");
  if (type == "Sequence") {
    for (const json& inner : part.at("processors")) read_template(inner, found);
  } else if (type == "TemplateProcessing") {
    bool text_seen = false;
    for (const json& piece : part.at("single")) {
      if (piece.contains("Sequence")) {
        text_seen = true;
        continue;
      }
      const auto token = piece.at("SpecialToken").at("id").get<std::string>();
      const auto ids =
          part.at("special_tokens").at(token).at("ids").get<std::vector<std::uint32_t>>();
      std::optional<std::uint32_t>& place = text_seen ? found.after : found.before;
      if (place || ids.size() != 1)
        throw Error("post_processor adds several tokens; GGUF has one before and one after a text");
      place = ids[0];
    }
  } else if (type != "ByteLevel") {
    throw Error("post_processor " + in_quotes(type) + " has no counterpart in GGUF");
  }
}

}  // namespace

TemplateTokens template_tokens(const json& file) {
  TemplateTokens around;
  read_template(file.value("post_processor", json()), around);
  return around;
}

GgufVocabulary::GgufVocabulary(std::size_t size)
    : tokens(size), types(size, static_cast<std::int32_t>(TokenType::kUnused)) {
  for (std::size_t i = 0; i < size; ++i)  // padding needs distinct names
    tokens[i] = "[PAD" + std::to_string(i) + "]";
}

void GgufVocabulary::set(const json& id, std::string token, TokenType type) {
  const std::optional<std::size_t> i = integer_in<std::size_t>(id);
  if (!i || *i >= tokens.size())
    throw Error("token " + in_quotes(token) + " has the id " + in_quotes(id.dump()) +
                " in a vocabulary of " + std::to_string(tokens.size()));
  tokens[*i] = std::move(token);
  types[*i] = static_cast<std::int32_t>(type);
}

TokenType type_of_added(const json& added) {
  for (const char* option : {"single_word", "lstrip", "rstrip"})
    if (added.value(option, false))
      throw Error("the added token " + added.at("content").dump() + " has '" + option +
                  "', which GGUF cannot express");
  return added.value("special", false) ? TokenType::kControl : TokenType::kUserDefined;
}

std::vector<std::string> merges_of(const json& model) {
  std::vector<std::string> merges;
  for (const json& merge : model.at("merges"))
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  return merges;
}

namespace {

GgufMetadata made_from(const json& file, const ModelConfig& config) {
  const json& model = file.at("model");
  if (model.value("type", "BPE") != "BPE")
    throw Error("model " + in_quotes(model.value("type", "?")) +
                " that is not a BPE is not written to GGUF");
  if (model.value("byte_fallback", false)) return made_from_fallback(file, config);
  const std::string name(known_pre_tokenizer(file).names.front());

  GgufVocabulary vocabulary(static_cast<std::size_t>(config.vocab));
  for (const auto& [token, id] : model.at("vocab").items())
    vocabulary.set(id, token, TokenType::kNormal);
  for (const json& added : file.value("added_tokens", json::array()))
    vocabulary.set(added.at("id"), added.at("content").get<std::string>(), type_of_added(added));

  const TemplateTokens around = template_tokens(file);
  GgufMetadata result{{"tokenizer.ggml.model", std::string("gpt2")},
                      {"tokenizer.ggml.pre", name},
                      {"tokenizer.ggml.tokens", std::move(vocabulary.tokens)},
                      {"tokenizer.ggml.token_type", std::move(vocabulary.types)},
                      {"tokenizer.ggml.merges", merges_of(model)},
                      {"tokenizer.ggml.add_bos_token", around.before.has_value()},
                      {"tokenizer.ggml.add_eos_token", around.after.has_value()}};
  if (around.before) result.emplace_back("tokenizer.ggml.bos_token_id", *around.before);
  return result;
}

/// The merges of a vocabulary whose tokens are ranked by their ids: all cuts of a token in two, in
/// the order in which transformers lists them in a tokenizer.json.
std::vector<std::string> merges_of_ranks(const Tokenizer& tokenizer) {
  std::unordered_map<std::string_view, TokenId> ids;
  for (TokenId id = 0; id < tokenizer.vocab(); ++id)
    if (!tokenizer.is_special(id)) ids.emplace(tokenizer.token_string(id), id);
  std::vector<std::string> merges;
  for (TokenId id = 0; id < tokenizer.vocab(); ++id) {
    if (tokenizer.is_special(id)) continue;
    const std::string_view text = tokenizer.token_string(id);
    std::vector<std::pair<TokenId, TokenId>> cuts;
    for (std::size_t cut = 0; cut < text.size(); cut += utf8_length(text[cut])) {
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (cut > 0 && left != ids.end() && right != ids.end())
        cuts.emplace_back(left->second, right->second);
    }
    std::sort(cuts.begin(), cuts.end());
    for (const auto& [left, right] : cuts)
      merges.push_back(std::string(tokenizer.token_string(left)) + " " +
                       std::string(tokenizer.token_string(right)));
  }
  return merges;
}

GgufMetadata made_from_tekken(const Checkpoint& model) {
  const auto tokenizer = load_tokenizer(model.root(), {}, model.config().vocab);
  const fs::path file = model.root() / "tekken.json";
  const json document = read_json(file, kMostTokenizerBytes, FileKind::kOfModel);
  return in_context("reading " + file.string(), [&] {
    const auto pattern = document.at("config").at("pattern").get<std::string>();
    const std::array<std::string_view, 1> patterns{pattern};
    const json alike{
        {"pre_tokenizer", json(pre_tokenizer_json({.names = {}, .patterns = patterns}))},
        {"model", {{"ignore_merges", true}}}};
    const std::string name(known_pre_tokenizer(alike).names.front());
    GgufVocabulary vocabulary(static_cast<std::size_t>(model.config().vocab));
    for (TokenId id = 0; id < tokenizer->vocab(); ++id)
      if (const std::string text(tokenizer->token_string(id)); !text.empty())
        vocabulary.set(id, text,
                       tokenizer->is_special(id) ? TokenType::kControl : TokenType::kNormal);
    const TokenId bos = tokenizer->encode("", AddSpecial::kYes).at(0);
    return GgufMetadata{{"tokenizer.ggml.model", std::string("gpt2")},
                        {"tokenizer.ggml.pre", name},
                        {"tokenizer.ggml.tokens", std::move(vocabulary.tokens)},
                        {"tokenizer.ggml.token_type", std::move(vocabulary.types)},
                        {"tokenizer.ggml.merges", merges_of_ranks(*tokenizer)},
                        {"tokenizer.ggml.add_bos_token", true},
                        {"tokenizer.ggml.add_eos_token", false},
                        {"tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(bos)}};
  });
}

GgufMetadata made_from_directory(const Checkpoint& model) {
  const fs::path file = model.root() / "tokenizer.json";
  if (!fs::exists(file)) return made_from_tekken(model);
  const json document = read_json(file, kMostTokenizerBytes, FileKind::kOfModel);
  return in_context("reading " + file.string(), [&] {
    GgufMetadata metadata = made_from(document, model.config());
    if (document.at("model").value("byte_fallback", false)) require_same_ids(model, metadata);
    return metadata;
  });
}

/// The end tokens under the keys that GGUF has for them, the padding token, and BOS if the template
/// has not given it.
void add_special_ids(const Checkpoint& model, GgufMetadata& metadata) {
  constexpr std::array kEndKeys{"eos", "eot", "eom"};
  const std::vector<TokenId>& ends = model.config().end_tokens;
  if (ends.size() > kEndKeys.size())
    throw Error("config.json has " + std::to_string(ends.size()) +
                " end tokens; GGUF has keys for three");
  const auto add = [&](const char* name, std::uint32_t id) {
    metadata.emplace_back(std::string("tokenizer.ggml.") + name + "_token_id", id);
  };
  for (std::size_t i = 0; i < ends.size(); ++i)
    add(kEndKeys[i], static_cast<std::uint32_t>(ends[i]));
  const auto from_config = [&](const char* name, const char* key) {
    const auto* id = model.metadata().find<std::int64_t>(key);
    if (id && *id >= 0 && *id < model.config().vocab)  // -1 is none
      add(name, static_cast<std::uint32_t>(*id));
  };
  from_config("padding", "pad_token_id");
  const bool told = std::any_of(metadata.begin(), metadata.end(), [](const auto& entry) {
    return entry.first == "tokenizer.ggml.bos_token_id";
  });
  if (!told) from_config("bos", "bos_token_id");
}

}  // namespace

GgufMetadata gguf_tokenizer_metadata(const Checkpoint& model) {
  if (!fs::is_directory(model.root())) return copied(model.metadata());
  if (!fs::exists(model.root() / "tokenizer.json") && !fs::exists(model.root() / "tekken.json"))
    return {};
  try {
    GgufMetadata metadata = made_from_directory(model);
    add_special_ids(model, metadata);
    const fs::path chat = model.root() / "chat_template.jinja",
                   config = model.root() / "tokenizer_config.json";
    if (fs::exists(chat)) {
      metadata.emplace_back("tokenizer.chat_template",
                            read_file(chat, kMostConfigBytes, FileKind::kOfModel));
    } else if (fs::exists(config)) {
      const json tokens = read_json(config, kMostConfigBytes, FileKind::kOfModel);
      if (tokens.contains("chat_template") && tokens["chat_template"].is_string())
        metadata.emplace_back("tokenizer.chat_template",
                              tokens["chat_template"].get<std::string>());
    }
    return metadata;
  } catch (const nlohmann::json::exception& e) {
    throw Error("the tokenizer files of " + model.root().string() +
                " are not understood: " + e.what());
  }
}

}  // namespace canopy
