// GGUF tokenizer metadata -> tokenizer.json and its companions.
#include <nlohmann/json.hpp>
#include <string_view>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/convert/hf_files.h"
#include "src/convert/output.h"
#include "src/convert/pre_tokenizers.h"

namespace canopy {

using nlohmann::ordered_json;

namespace {

/// What the template adds around one text.
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

/// What JSON can hold.
void require_utf8(const std::string& text, const std::string& what) {
  if (!is_utf8(text)) throw Error(what + " is not UTF-8: " + in_quotes(text));
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
  // Without merges every byte is a token.
  const std::vector<std::string> none;
  const auto* merges = gguf.find<std::vector<std::string>>("tokenizer.ggml.merges");
  const auto* pre = gguf.find<std::string>("tokenizer.ggml.pre");
  const std::string pre_name = pre ? *pre : "default";

  ordered_json vocab = ordered_json::object(), added = ordered_json::array();
  // ordered_json finds a key by a linear search; the object is built from its pairs instead.
  auto& pairs = vocab.get_ref<ordered_json::object_t&>();
  pairs.reserve(tokens->size());
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    const std::string& token = (*tokens)[id];
    require_utf8(token, "tokenizer.ggml.tokens[" + std::to_string(id) + "]");
    if (static_cast<TokenType>((*types)[id]) == TokenType::kUnused) continue;
    pairs.push_back({token, id});
    const auto type = static_cast<TokenType>((*types)[id]);
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    added.push_back({{"id", id},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type == TokenType::kControl}});
  }
  ordered_json merge_list = ordered_json::array();
  for (const std::string& merge : merges ? *merges : none) {
    require_utf8(merge, "tokenizer.ggml.merges");
    const auto space = merge.find(' ', 1);  // byte-level tokens hold no space
    if (space == std::string::npos)
      throw Error("tokenizer.ggml.merges holds " + in_quotes(merge) + ", which is not two tokens");
    merge_list.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }

  const auto id_of = [&](const char* name) -> const std::int64_t* {
    const auto* id = gguf.find<std::int64_t>(std::string("tokenizer.ggml.") + name + "_token_id");
    if (id != nullptr && (*id < 0 || static_cast<std::size_t>(*id) >= tokens->size()))
      throw Error(std::string("tokenizer.ggml.") + name + "_token_id is no token");
    return id;
  };
  const bool llama3 = pre_name == "llama-bpe";  // adds BOS unless the file says otherwise
  const std::int64_t* bos =
      flag(gguf, "tokenizer.ggml.add_bos_token", llama3) ? id_of("bos") : nullptr;
  const std::int64_t* eos =
      flag(gguf, "tokenizer.ggml.add_eos_token", false) ? id_of("eos") : nullptr;

  ordered_json json{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  json["added_tokens"] = std::move(added);
  json["normalizer"] = pre_name == "qwen2" ? ordered_json{{"type", "NFC"}} : ordered_json(nullptr);
  json["pre_tokenizer"] = pre_tokenizer_json(pre_name);
  json["post_processor"] = post_processor(*tokens, bos, eos);
  json["decoder"] = byte_level_json(true);
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", llama3}};
  json["model"]["vocab"] = std::move(vocab);
  json["model"]["merges"] = std::move(merge_list);
  write_text_file(directory / "tokenizer.json", json.dump(1) + "\n");

  ordered_json specials = ordered_json::object();
  for (const auto& [name, key] :
       {std::pair{"bos", "bos_token"}, std::pair{"eos", "eos_token"},
        std::pair{"unknown", "unk_token"}, std::pair{"padding", "pad_token"}})
    if (const std::int64_t* id = id_of(name))
      specials[key] = tokens->at(static_cast<std::size_t>(*id));
  write_text_file(directory / "special_tokens_map.json", specials.dump(2) + "\n");
  ordered_json config = specials;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  config["clean_up_tokenization_spaces"] = false;
  if (const auto* chat = gguf.find<std::string>("tokenizer.chat_template"))
    config["chat_template"] = to_utf8(*chat);
  write_text_file(directory / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace canopy
