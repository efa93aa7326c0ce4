// Tokenizers of SentencePiece's kind, as tokenizer.json has them, as GGUF metadata.
#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/convert/gguf/tokenizer_parts.h"
#include "src/text/tokenizer.h"

namespace canopy {

using nlohmann::json;

namespace {

constexpr const char* kMark = "\xE2\x96\x81";  // U+2581

/// Parts of a tokenizer.json that may be a list, or one that stands alone; none if it is null.
std::vector<json> steps_of(const json& file, const char* part, const char* list) {
  const json given = file.value(part, json());
  if (given.is_null()) return {};
  if (given.value("type", "") != "Sequence") return {given};
  return given.at(list).get<std::vector<json>>();
}

[[noreturn]] void refuse_part(const json& file, const char* part) {
  throw Error("the " + std::string(part) + " " + file.value(part, json()).dump().substr(0, 200) +
              " of a BPE with byte fallback has no counterpart in GGUF");
}

bool replaces(const json& step, const char* from, const char* to) {
  return step.value("type", "") == "Replace" && step.at("pattern").value("String", "") == from &&
         step.value("content", "") == to;
}

/// True if texts begin with the mark, false if they do not. Throws Error naming the part that cuts
/// or spells texts otherwise.
bool begins_with_mark(const json& file) {
  const std::vector<json> normal = steps_of(file, "normalizer", "normalizers"),
                          cuts = steps_of(file, "pre_tokenizer", "pretokenizers"),
                          back = steps_of(file, "decoder", "decoders");
  const bool prefix = normal.size() == 2 && normal[0].value("type", "") == "Prepend" &&
                      normal[0].value("prepend", "") == kMark;
  if (normal.size() != (prefix ? 2 : 1) || !replaces(normal.back(), " ", kMark))
    refuse_part(file, "normalizer");
  for (const json& cut : cuts)  // at spaces, of which none is left
    if (cut.value("type", "") != "Split" || cut.at("pattern").value("String", "") != " ")
      refuse_part(file, "pre_tokenizer");
  const auto is = [&](std::size_t i, const char* type) {
    return i < back.size() && back[i].value("type", "") == type;
  };
  const bool strips = is(3, "Strip") && back[3].value("content", "") == " " &&
                      back[3].value("start", 0) == 1 && back[3].value("stop", 0) == 0;
  if (back.size() != (prefix ? 4 : 3) || !replaces(back[0], kMark, " ") || !is(1, "ByteFallback") ||
      !is(2, "Fuse") || strips != prefix)
    refuse_part(file, "decoder");
  return prefix;
}

bool names_byte(std::string_view token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
         token.substr(3, 2).find_first_not_of(kDigits) == token.npos;
}

/// The vocabulary, with the strings of those tokens that texts are merged into.
struct MergedVocabulary {
  GgufVocabulary all;
  std::unordered_set<std::string> merged;
};

MergedVocabulary vocabulary_of(const json& file, std::size_t size, bool prefix) {
  MergedVocabulary result{GgufVocabulary(size), {}};
  const json& vocab = file.at("model").at("vocab");
  std::size_t bytes = 0;
  for (const auto& [token, id] : vocab.items()) {
    const bool is_byte = names_byte(token);
    result.all.set(id, token, is_byte ? TokenType::kByte : TokenType::kNormal);
    if (is_byte)
      ++bytes;
    else
      result.merged.insert(token);
  }
  if (bytes != 256 && (prefix || !file.at("model").value("fuse_unk", false)))
    throw Error("the vocabulary has " + std::to_string(bytes) +
                " of the 256 byte tokens <0x00> to <0xFF>");
  for (const json& added : file.value("added_tokens", json::array())) {
    const auto token = added.at("content").get<std::string>();
    const TokenType type = type_of_added(added);
    const bool has_space = token.find(' ') != token.npos || token.find(kMark) != token.npos;
    if (added.value("normalized", !added.value("special", false)) && (prefix || has_space))
      throw Error("the added token " + added.at("content").dump() +
                  " is 'normalized', which GGUF cannot express");
    // Runs of spaces are merged, and found as they are only where a text has the mark itself.
    if (type == TokenType::kUserDefined && has_space && result.merged.contains(token)) continue;
    result.all.set(added.at("id"), token, type);
    result.merged.erase(token);
  }
  return result;
}

/// Places at which merges that make a token cut it, and their ranks.
using Cuts = std::map<std::size_t, std::size_t>;

/// Scores by which SentencePiece makes the same merges: of any two neighbours that spell a token,
/// those of the highest score first. Throws Error naming a merge that this adds, or orders
/// otherwise.
std::vector<float> scores_of(const json& file, const MergedVocabulary& vocabulary) {
  std::unordered_map<std::string, Cuts> cuts_of;
  std::size_t rank = 0;
  for (const std::string& merge : merges_of(file.at("model"))) {
    const std::size_t space = merge.find(' ');
    if (space == merge.npos || merge.find(' ', space + 1) != merge.npos)
      throw Error("the merge " + in_quotes(merge) + " is not two tokens");
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    if (vocabulary.merged.contains(left) && vocabulary.merged.contains(right) &&
        vocabulary.merged.contains(left + right))
      cuts_of[left + right][left.size()] = rank;
    ++rank;
  }
  struct Ranks {
    std::size_t first, last;
    const std::string* token;
  };
  std::vector<Ranks> order;
  for (const std::string& token : vocabulary.merged) {
    const Cuts& cuts = cuts_of[token];
    for (std::size_t cut = utf8_length(token[0]); cut < token.size();
         cut += utf8_length(token[cut]))
      if (!cuts.contains(cut) && vocabulary.merged.contains(token.substr(0, cut)) &&
          vocabulary.merged.contains(token.substr(cut)))
        throw Error("GGUF's tokenizer 'llama' would merge " + in_quotes(token.substr(0, cut)) +
                    " and " + in_quotes(token.substr(cut)) + ", which this one does not");
    if (cuts.empty()) continue;
    Ranks ranks{rank, 0, &token};
    for (const auto& [cut, of_cut] : cuts) {
      ranks.first = std::min(ranks.first, of_cut);
      ranks.last = std::max(ranks.last, of_cut);
    }
    order.push_back(ranks);
  }
  std::sort(order.begin(), order.end(),
            [](const Ranks& a, const Ranks& b) { return a.first < b.first; });
  std::unordered_map<std::string_view, float> score_of;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && order[i - 1].last > order[i].first)
      throw Error("the merges of " + in_quotes(*order[i - 1].token) + " and " +
                  in_quotes(*order[i].token) +
                  " take turns, for which GGUF's tokenizer 'llama' has no scores");
    score_of[*order[i].token] = -static_cast<float>(i);
  }
  std::vector<float> scores;
  for (const std::string& token : vocabulary.all.tokens) {
    const auto at = score_of.find(token);
    scores.push_back(at == score_of.end() ? -static_cast<float>(order.size()) : at->second);
  }
  return scores;
}

}  // namespace

GgufMetadata made_from_fallback(const json& file, const ModelConfig& config) {
  const bool prefix = begins_with_mark(file);
  const json& model = file.at("model");
  if (model.value("ignore_merges", false))
    throw Error("'ignore_merges' of a BPE with byte fallback has no counterpart in GGUF");
  MergedVocabulary vocabulary = vocabulary_of(file, static_cast<std::size_t>(config.vocab), prefix);
  GgufMetadata result;
  const auto put = [&](const char* key, GgufValue value) {
    result.emplace_back(std::string("tokenizer.ggml.") + key, std::move(value));
  };
  put("model", std::string(prefix ? "llama" : "gemma4"));
  if (prefix)
    put("scores", scores_of(file, vocabulary));
  else
    put("merges", merges_of(model));
  put("add_space_prefix", prefix);
  put("tokens", std::move(vocabulary.all.tokens));
  put("token_type", std::move(vocabulary.all.types));
  if (const json unknown = model.value("unk_token", json()); unknown.is_string())
    put("unknown_token_id", model.at("vocab").at(unknown.get<std::string>()).get<std::uint32_t>());
  const TemplateTokens around = template_tokens(file);
  put("add_bos_token", around.before.has_value());
  put("add_eos_token", around.after.has_value());
  if (around.before) put("bos_token_id", *around.before);
  if (around.after && config.end_tokens.empty()) put("eos_token_id", *around.after);
  if (around.after && !config.end_tokens.empty() &&
      std::cmp_not_equal(config.end_tokens.front(), *around.after))
    throw Error("texts end with token " + std::to_string(*around.after) +
                ", and answers with token " + std::to_string(config.end_tokens.front()) +
                "; GGUF has one key for both");
  return result;
}

void require_same_ids(const Checkpoint& model, const GgufMetadata& metadata) {
  Metadata written;
  for (const auto& [key, value] : metadata)
    std::visit(
        [&, &name = key](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::uint32_t>)
            written.set(name, static_cast<std::int64_t>(v));
          else if constexpr (std::is_same_v<T, float>)
            written.set(name, static_cast<double>(v));
          else
            written.set(name, v);
        },
        value);
  const int vocab = model.config().vocab;
  const auto ours = load_tokenizer(model.root(), {}, vocab),
             theirs = load_tokenizer("tokenizer.gguf", written, vocab);
  std::string before;
  for (TokenId id = 0; id < ours->vocab(); ++id) {
    const std::string text(ours->piece(id));
    if (text.empty() || !is_utf8(text)) continue;
    for (const std::string& one : {text, before + text})
      if (ours->encode(one, AddSpecial::kYes) != theirs->encode(one, AddSpecial::kYes))
        throw Error("GGUF's tokenizer " +
                    in_quotes(*written.find<std::string>("tokenizer.ggml.model")) +
                    " would encode " + in_quotes(one) + " otherwise than this one");
    before = text;
  }
}

}  // namespace canopy
