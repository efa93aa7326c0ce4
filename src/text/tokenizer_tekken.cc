// Reads tekken.json, the format of Mistral's own library (mistral-common).
#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/text/base64.h"
#include "src/text/json_members.h"
#include "src/text/pipeline/byte_level.h"
#include "src/text/pipeline/pipeline.h"

namespace canopy::text {

using nlohmann::json;

namespace {

/// Files in use have 1000 special tokens, most of them fillers that no list has to name.
constexpr std::int64_t kMostSpecials = 65536;

/// The first special tokens of files up to version v7 that do not list them.
constexpr std::array<std::string_view, 20> kUnlisted{"<unk>",
                                                     "<s>",
                                                     "</s>",
                                                     "[INST]",
                                                     "[/INST]",
                                                     "[AVAILABLE_TOOLS]",
                                                     "[/AVAILABLE_TOOLS]",
                                                     "[TOOL_RESULTS]",
                                                     "[/TOOL_RESULTS]",
                                                     "[TOOL_CALLS]",
                                                     "[IMG]",
                                                     "<pad>",
                                                     "[IMG_BREAK]",
                                                     "[IMG_END]",
                                                     "[PREFIX]",
                                                     "[MIDDLE]",
                                                     "[SUFFIX]",
                                                     "[SYSTEM_PROMPT]",
                                                     "[/SYSTEM_PROMPT]",
                                                     "[TOOL_CONTENT]"};
constexpr std::array<std::string_view, 4> kVersionsWithoutList{"v1", "v2", "v3", "v7"};

std::string element(const char* list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

/// Throws Error unless the entry of a list has its own index for a rank.
void check_rank(const json& entry, std::size_t index, const std::string& part) {
  const std::int64_t rank = integer(member(entry, "rank", part), part + ": 'rank'");
  if (rank != static_cast<std::int64_t>(index))
    throw Error(part + ": 'rank' is " + std::to_string(rank) + " and should be " +
                std::to_string(index) + ": tokens are listed by rank, each rank once");
}

/// The texts of the special tokens by id: those listed, then fillers.
std::vector<std::string> special_texts(const json& document, std::size_t count) {
  std::vector<std::string> texts;
  if (const json* list = optional_member(document, "special_tokens", "the document")) {
    if (!list->is_array()) throw Error("special_tokens is not an array");
    for (const json& entry : *list) {
      const std::string part = element("special_tokens", texts.size());
      check_rank(entry, texts.size(), part);
      texts.push_back(string_member(entry, "token_str", part));
      if (texts.back().empty()) throw Error(part + ": 'token_str' is empty");
    }
  } else {
    const std::string& version = string_member(document["config"], "version", "config");
    if (std::find(kVersionsWithoutList.begin(), kVersionsWithoutList.end(), version) ==
        kVersionsWithoutList.end())
      throw Error("special_tokens is missing; files of version " + in_quotes(version) +
                  " (config: 'version') have to list them");
    texts.assign(kUnlisted.begin(), kUnlisted.end());
  }
  if (texts.size() > count)
    throw Error("special_tokens are " + std::to_string(texts.size()) +
                ", more than 'default_num_special_tokens' of config, which is " +
                std::to_string(count));
  while (texts.size() < count) texts.push_back("<SPECIAL_" + std::to_string(texts.size()) + ">");
  return texts;
}

void read_special_tokens(const json& document, std::size_t count, Pipeline& pipeline) {
  std::unordered_set<std::string> seen;
  for (const std::string& text : special_texts(document, count)) {
    const auto id = static_cast<TokenId>(seen.size());
    if (!seen.insert(text).second)
      throw Error(element("special_tokens", seen.size()) + ": " + in_quotes(text) +
                  " is the text of an earlier one, too");
    Token& token = pipeline.tokens.add(text, id);
    token.piece = text;
    token.special = true;
    token.ends_text = text == "</s>";
    if (text == "<s>") pipeline.before.push_back(id);
    pipeline.raw_added.add({text, id});
  }
  for (const char* needed : {"<s>", "</s>"})
    if (!seen.contains(needed))
      throw Error("special_tokens: " + in_quotes(needed) +
                  ", with which texts begin or end, is missing");
}

/// The tokens of lists "vocab", `count` of them, after the `specials`; any two neighbours that join
/// into a token merge, the token of the lowest rank first.
void read_vocabulary(const json& vocabulary, std::size_t count, std::size_t specials,
                     Pipeline& pipeline) {
  Bpe& bpe = pipeline.model;
  bpe.vocabulary.reserve(count);
  for (std::size_t rank = 0; rank < count; ++rank) {
    const std::string part = element("vocab", rank);
    const json& entry = vocabulary[rank];
    check_rank(entry, rank, part);
    const std::string& coded = string_member(entry, "token_bytes", part);
    const std::optional<std::string> bytes = from_base64(coded);
    if (!bytes || bytes->empty())
      throw Error(part + ": 'token_bytes' is " + in_quotes(coded) +
                  ", which is no bytes in base64");
    if (bytes->size() > kLongestCut)
      throw Error(part + ": 'token_bytes' are " + std::to_string(bytes->size()) +
                  " bytes; the limit is " + std::to_string(kLongestCut));
    std::string text;
    for (const char c : *bytes) text += byte_to_visible(static_cast<unsigned char>(c));
    const auto id = static_cast<TokenId>(specials + rank);
    pipeline.tokens.add(text, id).piece = *bytes;
    const auto [known, fresh] = bpe.vocabulary.emplace(std::move(text), id);
    if (!fresh)
      throw Error(part + ": 'token_bytes' is " + in_quotes(coded) + ", as that of " +
                  element("vocab", static_cast<std::size_t>(known->second) - specials));
  }
  for (unsigned b = 0; b < 256; ++b)
    if (!find(bpe.vocabulary, byte_to_visible(static_cast<unsigned char>(b))))
      throw Error("vocab: of its first " + std::to_string(count) + " tokens none is the byte " +
                  std::to_string(b) + "; each byte has to be one");
  for (const auto& [text, id] : bpe.vocabulary)
    add_cuts(bpe, text, id, static_cast<std::uint32_t>(static_cast<std::size_t>(id) - specials));
  bpe.ignore_merges = true;
}

Pipeline read_pipeline(const json& document) {
  const json& config = member(document, "config", "the document");
  const json& vocabulary = array_member(document, "vocab", "the document");
  const auto number = [&](const char* key) {
    return integer(member(config, key, "config"), std::string("config: '") + key + "'");
  };
  const std::int64_t specials = number("default_num_special_tokens");
  if (specials < 0 || specials > kMostSpecials)
    throw Error("config: 'default_num_special_tokens' is " + std::to_string(specials) +
                "; it may be 0 to " + std::to_string(kMostSpecials));
  const std::int64_t size = number("default_vocab_size");
  if (size < specials || size - specials > static_cast<std::int64_t>(vocabulary.size()))
    throw Error("config: 'default_vocab_size' is " + std::to_string(size) + ", but there are " +
                std::to_string(specials) + " special tokens and " +
                std::to_string(vocabulary.size()) + " in vocab");
  Pipeline pipeline(static_cast<std::size_t>(size));
  const std::string& pattern = string_member(config, "pattern", "config");
  pipeline.pre_tokenizer.emplace_back(
      in_context("reading config: 'pattern'", [&] { return Split{Pattern::regex(pattern)}; }));
  pipeline.pre_tokenizer.emplace_back(ByteLevel{});
  read_special_tokens(document, static_cast<std::size_t>(specials), pipeline);
  read_vocabulary(vocabulary, static_cast<std::size_t>(size - specials),
                  static_cast<std::size_t>(specials), pipeline);
  return pipeline;
}

}  // namespace

Pipeline pipeline_from_tekken(const std::filesystem::path& file) {
  const json document = read_json(file, kMostTokenizerBytes, FileKind::kOfModel);
  return in_context("reading " + file.string(), [&] { return read_pipeline(document); });
}

}  // namespace canopy::text
