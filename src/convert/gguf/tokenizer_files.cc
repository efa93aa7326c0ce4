// GGUF tokenizer metadata -> tokenizer.json and its companions.
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/convert/gguf/pre_tokenizers.h"
#include "src/convert/output.h"
#include "src/convert/safetensors/hf_files.h"

namespace canopy {

using nlohmann::ordered_json;

namespace {

/// Describes what the template adds around one text.
ordered_json post_processor(const std::vector<std::string>& tokens, const std::int64_t* bos,
                            const std::int64_t* eos) {
  if (bos == nullptr && eos == nullptr) return nullptr;
  ordered_json single = ordered_json::array(), specials = ordered_json::object();
  const auto add = [&](const std::int64_t* id) {
    if (id == nullptr) return;
    const std::string& token = tokens.at(static_cast<std::size_t>(*id));
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    specials[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
  };
  add(bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  add(eos);
  ordered_json pair = single;
  for (ordered_json part : single) {
    if (part.contains("Sequence")) part["Sequence"]["id"] = "B";
    part.begin()->at("type_id") = 1;
    pair.push_back(part);
  }
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", specials}};
}

bool flag(const Metadata& metadata, std::string_view key, bool otherwise) {
  const bool* value = metadata.find<bool>(key);
  return value ? *value : otherwise;
}

/// Throws Error unless JSON can hold the text.
void require_utf8(const std::string& text, const std::string& what) {
  if (!is_utf8(text)) throw Error(what + " is not UTF-8: " + in_quotes(text));
}

/// tokenizer.json's "vocab" and "added_tokens".
struct Vocabulary {
  ordered_json tokens = ordered_json::object(), added = ordered_json::array();
};

Vocabulary vocabulary(const std::vector<std::string>& tokens,
                      const std::vector<std::int32_t>& types) {
  Vocabulary result;
  // ordered_json finds a key by a linear search; the object is built from its pairs instead.
  auto& pairs = result.tokens.get_ref<ordered_json::object_t&>();
  pairs.reserve(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    require_utf8(token, "tokenizer.ggml.tokens[" + std::to_string(id) + "]");
    const auto type = static_cast<TokenType>(types[id]);
    if (type == TokenType::kUnused) continue;
    pairs.push_back({token, id});
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    result.added.push_back({{"id", id},
                            {"content", token},
                            {"single_word", false},
                            {"lstrip", false},
                            {"rstrip", false},
                            {"normalized", false},
                            {"special", type == TokenType::kControl}});
  }
  return result;
}

/// tokenizer.json's "merges". Without any every byte is a token.
ordered_json merges_json(const Metadata& gguf) {
  ordered_json result = ordered_json::array();
  const auto* merges = gguf.find<std::vector<std::string>>("tokenizer.ggml.merges");
  if (merges == nullptr) return result;
  for (const std::string& merge : *merges) {
    require_utf8(merge, "tokenizer.ggml.merges");
    const auto space = merge.find(' ', 1);  // byte-level tokens hold no space
    if (space == std::string::npos)
      throw Error("tokenizer.ggml.merges holds " + in_quotes(merge) + ", which is not two tokens");
    result.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  return result;
}

/// The id of the token that the file calls so, one of `count`; null where it names none.
const std::int64_t* id_of(const Metadata& gguf, const char* name, std::size_t count) {
  const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
  const auto* id = gguf.find<std::int64_t>(key);
  // Some files have -1 for none.
  return id != nullptr && *id >= 0 && static_cast<std::size_t>(*id) < count ? id : nullptr;
}

ordered_json tokenizer_json(const Metadata& gguf, const std::vector<std::string>& tokens,
                            Vocabulary vocabulary) {
  const auto* name = gguf.find<std::string>("tokenizer.ggml.pre");
  const auto* const pre = text::find_gguf_pre_tokenizer(name ? *name : "default");
  if (pre == nullptr)
    throw Error("pre-tokenizer " + in_quotes(*name) +
                " (key tokenizer.ggml.pre) cannot be written as tokenizer.json; known: " +
                text::gguf_pre_tokenizer_names());
  const auto added = [&](const char* key, bool otherwise, const char* name) {
    if (!flag(gguf, key, otherwise)) return static_cast<const std::int64_t*>(nullptr);
    const std::int64_t* const id = id_of(gguf, name, tokens.size());
    if (id == nullptr)
      throw Error(std::string(key) + " asks for tokenizer.ggml." + name +
                  "_token_id, which is missing or no token");
    return id;
  };
  const std::int64_t* bos =
      added("tokenizer.ggml.add_bos_token",
            pre->adds_bos && gguf.contains("tokenizer.ggml.bos_token_id"), "bos");
  const std::int64_t* eos = added("tokenizer.ggml.add_eos_token", false, "eos");

  ordered_json json{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  json["added_tokens"] = std::move(vocabulary.added);
  json["normalizer"] = pre->nfc ? ordered_json{{"type", "NFC"}} : ordered_json(nullptr);
  json["pre_tokenizer"] = pre_tokenizer_json(*pre);
  json["post_processor"] = post_processor(tokens, bos, eos);
  json["decoder"] = byte_level_json(true);
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", pre->whole_words}};
  json["model"]["vocab"] = std::move(vocabulary.tokens);
  json["model"]["merges"] = merges_json(gguf);
  return json;
}

/// special_tokens_map.json and tokenizer_config.json.
void write_config_files(const Metadata& gguf, const std::vector<std::string>& tokens,
                        const std::filesystem::path& directory) {
  ordered_json specials = ordered_json::object();
  for (const auto& [name, key] :
       {std::pair{"bos", "bos_token"}, std::pair{"eos", "eos_token"},
        std::pair{"unknown", "unk_token"}, std::pair{"padding", "pad_token"}})
    if (const std::int64_t* id = id_of(gguf, name, tokens.size()))
      specials[key] = tokens.at(static_cast<std::size_t>(*id));
  write_text_file(directory / "special_tokens_map.json", specials.dump(2) + "\n");
  ordered_json config = specials;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["clean_up_tokenization_spaces"] = false;
  if (const auto* chat = gguf.find<std::string>("tokenizer.chat_template"))
    config["chat_template"] = to_utf8(*chat);
  write_text_file(directory / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace

void write_tokenizer_files(const Metadata& gguf, const std::filesystem::path& directory) {
  const auto* model = gguf.find<std::string>("tokenizer.ggml.model");
  if (model == nullptr) return;
  if (*model != "gpt2")
    throw Error("a tokenizer of type " + in_quotes(*model) +
                " (key tokenizer.ggml.model) cannot be written as tokenizer.json; use the model's "
                "Hugging Face directory");
  const auto* tokens = gguf.find<std::vector<std::string>>("tokenizer.ggml.tokens");
  const auto* types = gguf.find<std::vector<std::int32_t>>("tokenizer.ggml.token_type");
  if (tokens == nullptr || types == nullptr || types->size() != tokens->size())
    throw Error("the metadata lack tokenizer.ggml.tokens or .token_type");
  const ordered_json json = tokenizer_json(gguf, *tokens, vocabulary(*tokens, *types));
  write_text_file(directory / "tokenizer.json", json.dump(1) + "\n");
  write_config_files(gguf, *tokens, directory);
}

}  // namespace canopy
