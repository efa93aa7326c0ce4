// Builds a tokenizer from the "tokenizer.ggml.*" metadata of a GGUF file.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/gguf_pre_tokenizers.h"
#include "src/text/pipeline/pipeline.h"

namespace canopy::text {

namespace {

/// Values of tokenizer.ggml.token_type.
enum TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// The keys under "tokenizer.ggml.", checked.
class Keys {
 public:
  explicit Keys(const Metadata& metadata) : metadata_(metadata) {}

  template <class T>
  const T* find(std::string_view key) const {
    return metadata_.find<T>(std::string(kPrefix) + std::string(key));
  }
  template <class T>
  const T& get(std::string_view key) const {
    if (const T* value = find<T>(key)) return *value;
    throw Error(std::string(kPrefix) + std::string(key) + " is missing or of another type");
  }
  bool flag(std::string_view key, bool absent) const {
    const bool* value = find<bool>(key);
    return value ? *value : absent;
  }

 private:
  static constexpr std::string_view kPrefix = "tokenizer.ggml.";
  const Metadata& metadata_;
};

const GgufPreTokenizer& pre_tokenizer_of(const Keys& keys) {
  const auto& name = keys.get<std::string>("pre");
  if (const GgufPreTokenizer* known = find_gguf_pre_tokenizer(name)) return *known;
  throw Error("the pre-tokenizer " + in_quotes(name) +
              " (tokenizer.ggml.pre) is not supported; known: " + gguf_pre_tokenizer_names());
}

void set_pre_tokenizer(const GgufPreTokenizer& pre, Pipeline& pipeline) {
  PreTokenizer& steps = pipeline.pre_tokenizer;
  if (pre.nfc) pipeline.normalizer.emplace_back(Nfc{});
  if (pre.digits_first) steps.emplace_back(digit_split(Split::Behavior::kIsolated));
  for (const std::string_view pattern : pre.patterns)
    steps.emplace_back(Split{Pattern::regex(pattern)});
  if (pre.gpt2_last) steps.emplace_back(gpt2_split());
  steps.emplace_back(ByteLevel{});
  pipeline.model.ignore_merges = pre.whole_words;
}

/// `added`: tokens that texts are cut at before anything is merged, whose merges count for nothing.
void read_merges(const std::vector<std::string>& merges, Bpe& bpe,
                 const std::unordered_set<std::string_view>& added = {}) {
  std::uint32_t rank = 0;
  for (const std::string& merge : merges) {
    const std::string where = "tokenizer.ggml.merges[" + std::to_string(rank) + "]";
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos)
      throw Error(where + " is not two tokens with a space between them: " + in_quotes(merge));
    const std::string_view left = std::string_view(merge).substr(0, space),
                           right = std::string_view(merge).substr(space + 1);
    const std::string whole = std::string(left).append(right);
    if (!added.contains(left) && !added.contains(right) && !added.contains(whole))
      add_merge(bpe, left, right, rank, where);
    ++rank;
  }
}

/// SentencePiece merges any two neighbours that spell a token, the highest score first: each way to
/// cut a token in two is a merge of that token's rank.
void make_merges(const std::vector<std::string>& tokens, const std::vector<float>& scores,
                 Bpe& bpe) {
  if (scores.size() != tokens.size())
    throw Error("tokenizer.ggml.scores has " + std::to_string(scores.size()) + " entries for " +
                std::to_string(tokens.size()) + " tokens");
  if (!std::all_of(scores.begin(), scores.end(), [](float s) { return std::isfinite(s); }))
    throw Error("tokenizer.ggml.scores has an entry that is not a finite number");
  std::vector<float> ranked(scores);
  std::sort(ranked.begin(), ranked.end(), std::greater<>());
  ranked.erase(std::unique(ranked.begin(), ranked.end()), ranked.end());
  for (const auto& [token, id] : bpe.vocabulary) {
    if (named_byte(token)) continue;
    if (token.size() > kLongestCut)
      throw Error("token " + std::to_string(id) + " has " + std::to_string(token.size()) +
                  " bytes; the limit is " + std::to_string(kLongestCut));
    const float score = scores[static_cast<std::size_t>(id)];
    const auto rank = std::lower_bound(ranked.begin(), ranked.end(), score, std::greater<>());
    add_cuts(bpe, token, id, static_cast<std::uint32_t>(rank - ranked.begin()));
  }
}

/// Fills the table, the model's vocabulary and the added tokens; pieces by `steps`. Where lines are
/// added, tokens of line ends alone are of these, whatever type they have.
void read_tokens(const Keys& keys, const PieceSteps& steps, Pipeline& pipeline,
                 bool lines_are_added = false) {
  const auto& tokens = keys.get<std::vector<std::string>>("tokens");
  const auto* types = keys.find<std::vector<std::int32_t>>("token_type");
  if (types && types->size() != tokens.size())
    throw Error("tokenizer.ggml.token_type has " + std::to_string(types->size()) + " entries for " +
                std::to_string(tokens.size()) + " tokens");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& text = tokens[i];
    const std::int32_t type = types ? (*types)[i] : kNormal;
    const auto id = static_cast<TokenId>(i);
    if (type == kUnused || text.empty()) continue;
    const std::string where = "token " + std::to_string(i);
    if (!is_utf8(text)) throw Error(where + " is not UTF-8: " + in_quotes(text));
    Token& token = pipeline.tokens.add(text, id);
    token.special = type == kControl || type == kUnknown;
    if (token.special || type == kUserDefined) {
      token.piece = text;
      pipeline.raw_added.add({text, id});
    } else if (type == kNormal && lines_are_added && text.find_first_not_of('\n') == text.npos) {
      token.piece = text;
      pipeline.raw_added.add({text, id});
    } else if (type == kNormal || type == kByte) {
      token.piece = make_piece(steps, text);
      const auto [at, fresh] = pipeline.model.vocabulary.emplace(text, id);
      if (!fresh)
        throw Error(where + " and token " + std::to_string(at->second) + " are both " +
                    in_quotes(text));
    } else {
      throw Error(where + " has the unknown type " + std::to_string(type));
    }
  }
}

/// A special token at which texts of some chat models end. Files name one such token, but a model
/// may have several.
struct UsualEnd {
  std::string_view text;
  std::array<std::string_view, 2> only_with = {};  // next to all of these special tokens
  std::array<std::string_view, 2> not_with = {};   // not next to all of these, if there are any
};
constexpr UsualEnd kUsualEnds[] = {
    {"<|im_end|>"},
    {"<|eot_id|>"},
    {"<|eom_id|>"},
    {"<|end_of_text|>"},
    {"<|endoftext|>"},
    {"<end_of_turn>"},
    {"<turn|>"},  // Gemma 4, as the next
    {"<|tool_response>"},
    {"<|eot|>"},
    {"<|eom|>"},
    {"<|END_OF_TURN_TOKEN|>"},
    {"<|user|>", {"[gMASK]", "<|observation|>"}},  // GLM; others begin a turn with the same
    {"<|observation|>", {"[gMASK]", "<|user|>"}},
    {"<\uFF5Cend\u2581of\u2581sentence\uFF5C>"},  // DeepSeek
    {"</s>", {}, {"<|tool_response>"}},           // in Gemma 4 a mark of HTML
    {"<|end|>", {}, {"<|return|>", "<|call|>"}},  // there it ends a part of an answer
    {"<|return|>"},
    {"<|call|>"},
    {"<EOT>"},
    {"<end_of_utterance>"},
    {"<seed:eos>"},
};

void mark_usual_ends(TokenTable& tokens) {
  std::unordered_map<std::string_view, Token*> special;
  for (Token& token : tokens)
    if (token.special) special.emplace(token.text, &token);
  const auto has = [&](std::string_view text) { return text.empty() || special.contains(text); };
  for (const UsualEnd& end : kUsualEnds) {
    const auto at = special.find(end.text);
    const bool excluded = !end.not_with[0].empty() && has(end.not_with[0]) && has(end.not_with[1]);
    if (at != special.end() && has(end.only_with[0]) && has(end.only_with[1]) && !excluded)
      at->second->ends_text = true;
  }
}

void read_special_ids(const Keys& keys, bool bos_by_default, Pipeline& pipeline) {
  const auto put = [&](const char* flag, bool absent, const char* key, std::vector<TokenId>& ids) {
    if (!keys.flag(flag, absent)) return;
    const auto id = keys.get<std::int64_t>(key);
    in_context("reading tokenizer.ggml." + std::string(key), [&] { pipeline.tokens.at(id); });
    ids.push_back(static_cast<TokenId>(id));
  };
  put("add_bos_token", bos_by_default, "bos_token_id", pipeline.before);
  put("add_eos_token", false, "eos_token_id", pipeline.after);

  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto* id = keys.find<std::int64_t>(key)) pipeline.tokens.end_at(*id);
  mark_usual_ends(pipeline.tokens);
}

/// Merges over whole texts whose spaces are marks, with bytes for what no token spells.
void read_gemma4(const Keys& keys, Pipeline& pipeline) {
  if (keys.flag("add_space_prefix", false))
    throw Error(
        "tokenizer.ggml.add_space_prefix of the tokenizer model 'gemma4' is true, which is "
        "not supported");
  const std::string mark(kSpaceMark);
  PieceSteps steps;
  steps.emplace_back(Replace{Pattern::literal(mark), " "});
  steps.emplace_back(ByteFallback{});
  constexpr bool kLinesAreAdded = true;  // as they are where the model comes from
  read_tokens(keys, steps, pipeline, kLinesAreAdded);
  Bpe& bpe = pipeline.model;
  std::unordered_set<std::string_view> added;
  for (const Token& token : pipeline.tokens)
    if (!find(bpe.vocabulary, token.text)) added.insert(token.text);
  read_merges(keys.get<std::vector<std::string>>("merges"), bpe, added);
  bpe.byte_tokens = find_byte_tokens(bpe);
  bpe.fuse_unknown = true;
  if (const auto* unknown = keys.find<std::int64_t>("unknown_token_id")) {
    in_context("reading tokenizer.ggml.unknown_token_id", [&] { pipeline.tokens.at(*unknown); });
    bpe.unknown = static_cast<TokenId>(*unknown);
  }
  pipeline.normalizer.emplace_back(Replace{Pattern::literal(" "), mark});
  read_special_ids(keys, true, pipeline);
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_from_gguf(const Metadata& metadata, std::size_t model_vocab) {
  const Keys keys(metadata);
  const auto& model = keys.get<std::string>("model");
  const std::size_t named = keys.get<std::vector<std::string>>("tokens").size();
  Pipeline pipeline(named);
  pipeline.tokens.pad_to(std::max(named, model_vocab));
  PieceSteps steps;
  if (model == "gpt2") {
    const GgufPreTokenizer& pre = pre_tokenizer_of(keys);
    set_pre_tokenizer(pre, pipeline);
    steps.emplace_back(FromByteLevel{});
    read_tokens(keys, steps, pipeline);
    read_merges(keys.get<std::vector<std::string>>("merges"), pipeline.model);
    read_special_ids(keys, pre.adds_bos && keys.find<std::int64_t>("bos_token_id"), pipeline);
  } else if (model == "gemma4") {
    read_gemma4(keys, pipeline);
  } else if (model == "llama") {
    const std::string mark(kSpaceMark);
    steps.emplace_back(Replace{Pattern::literal(mark), " "});
    steps.emplace_back(ByteFallback{});
    read_tokens(keys, steps, pipeline);
    make_merges(keys.get<std::vector<std::string>>("tokens"),
                keys.get<std::vector<float>>("scores"), pipeline.model);
    pipeline.model.byte_tokens = find_byte_tokens(pipeline.model);
    const auto& bytes = *pipeline.model.byte_tokens;
    if (std::any_of(bytes.begin(), bytes.end(), [](TokenId id) { return id < 0; }))
      throw Error("tokenizer.ggml.tokens lacks some of the 256 byte tokens <0x00> to <0xFF>");
    if (keys.flag("add_space_prefix", true)) {
      pipeline.normalizer.emplace_back(Prepend{mark});
      pipeline.text_start.strip = {" ", 1, 0};
    }
    pipeline.normalizer.emplace_back(Replace{Pattern::literal(" "), mark});
    read_special_ids(keys, true, pipeline);
  } else {
    throw Error("the tokenizer model " + in_quotes(model) +
                " (tokenizer.ggml.model) is not supported; known: gpt2, llama, gemma4");
  }
  return make_tokenizer(std::move(pipeline));
}

}  // namespace canopy::text
