// Reads tokenizer.json, the format of Hugging Face's tokenizers library, or GPT-2's older files.
#include <algorithm>
#include <charconv>
#include <functional>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/text/json_members.h"
#include "src/text/pipeline/pipeline.h"

namespace canopy::text {

using nlohmann::json;

namespace {

/// The tokenizers in use have ten at most; each takes its time of every text.
constexpr std::size_t kMostSteps = 64;

/// A part of the pipeline that is one step, or a "Sequence" of them under `list`. Calls read(step,
/// type, part) for each. Throws Error if they are more than kMostSteps.
using ReadStep = std::function<void(const json&, const std::string&, const std::string&)>;
void for_each_step(const json& document, const char* key, const char* list, const ReadStep& read) {
  const json* root = optional_member(document, key, "the document");
  if (!root) return;
  std::size_t steps = 0;
  const std::function<void(const json&, const std::string&)> visit = [&](const json& step,
                                                                         const std::string& part) {
    const std::string& type = string_member(step, "type", part);
    if (type != "Sequence") {
      if (++steps > kMostSteps)
        throw Error(std::string(key) + ": more than " + std::to_string(kMostSteps) + " steps");
      return read(step, type, part);
    }
    std::size_t index = 0;
    for (const json& inner : array_member(step, list, part))
      visit(inner, part + "[" + std::to_string(index++) + "]");
  };
  visit(*root, key);
}

[[noreturn]] void refuse_type(const std::string& part, const std::string& type) {
  throw Error(part + ": the type " + in_quotes(type) + " is not supported");
}

/// {"String": "..."} or {"Regex": "..."}
Pattern read_pattern(const json& step, const std::string& part) {
  return in_context("reading the pattern of " + part, [&] {
    const json& pattern = member(step, "pattern", part);
    return optional_member(pattern, "Regex", part)
               ? Pattern::regex(string_member(pattern, "Regex", part))
               : Pattern::literal(string_member(pattern, "String", part));
  });
}

std::string one_character(const json& step, const char* key, const std::string& part) {
  const std::string& text = string_member(step, key, part);
  if (text.empty() || utf8_length(text[0]) != text.size())
    throw Error(part + ": '" + key + "' is " + in_quotes(text) + ", not one character");
  return text;
}

Normalizer read_normalizer(const json& document) {
  Normalizer out;
  for_each_step(
      document, "normalizer", "normalizers",
      [&](const json& step, const std::string& type, const std::string& part) {
        if (type == "NFC")
          out.emplace_back(Nfc{});
        else if (type == "Prepend")
          out.emplace_back(Prepend{string_member(step, "prepend", part)});
        else if (type == "Replace")
          out.emplace_back(Replace{read_pattern(step, part), string_member(step, "content", part)});
        else
          refuse_type(part, type);
      });
  return out;
}

Split::Behavior read_behavior(const json& step, const std::string& part) {
  using Behavior = Split::Behavior;
  const std::string& name = string_member(step, "behavior", part);
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  throw Error(part + ": the behavior " + in_quotes(name) + " is not supported");
}

Metaspace read_metaspace(const json& step, const std::string& part) {
  Metaspace out;
  out.replacement = one_character(step, "replacement", part);
  out.split = bool_member(step, "split", true, part);
  if (optional_member(step, "prepend_scheme", part)) {
    const std::string& scheme = string_member(step, "prepend_scheme", part);
    if (scheme == "never")
      out.prepend = Metaspace::Scheme::kNever;
    else if (scheme == "first")
      out.prepend = Metaspace::Scheme::kFirst;
    else if (scheme != "always")
      throw Error(part + ": the prepend_scheme " + in_quotes(scheme) + " is not supported");
  } else if (!bool_member(step, "add_prefix_space", true, part)) {  // the older spelling
    out.prepend = Metaspace::Scheme::kNever;
  }
  return out;
}

PreTokenizer read_pre_tokenizer(const json& document) {
  PreTokenizer out;
  for_each_step(document, "pre_tokenizer", "pretokenizers",
                [&](const json& step, const std::string& type, const std::string& part) {
                  if (type == "Split") {
                    out.emplace_back(Split{read_pattern(step, part), read_behavior(step, part),
                                           bool_member(step, "invert", false, part)});
                  } else if (type == "ByteLevel") {
                    const bool prefix = bool_member(step, "add_prefix_space", true, part);
                    if (prefix) out.emplace_back(PrefixSpace{});
                    if (bool_member(step, "use_regex", true, part)) out.emplace_back(gpt2_split());
                    out.emplace_back(ByteLevel{});
                  } else if (type == "Digits") {
                    out.emplace_back(digit_split(bool_member(step, "individual_digits", false, part)
                                                     ? Split::Behavior::kIsolated
                                                     : Split::Behavior::kContiguous));
                  } else if (type == "Metaspace") {
                    out.emplace_back(read_metaspace(step, part));
                  } else {
                    refuse_type(part, type);
                  }
                });
  return out;
}

void read_decoder(const json& document, PieceSteps& steps, TextStart& start) {
  if (!optional_member(document, "decoder", "the document"))
    throw Error("decoder: missing; only decoders that give text back unchanged are supported");
  bool fused = false;
  for_each_step(
      document, "decoder", "decoders",
      [&](const json& step, const std::string& type, const std::string& part) {
        if (type == "Fuse") {
          fused = true;
          return;
        }
        if (type == "Strip") {
          const auto count = [&](const char* key) {
            const std::int64_t n = integer(member(step, key, part), part + ": '" + key + "'");
            if (n < 0) throw Error(part + ": '" + key + "' is negative");
            return static_cast<std::size_t>(n);
          };
          const StripToken strip{one_character(step, "content", part), count("start"),
                                 count("stop")};
          if (!fused)
            steps.emplace_back(strip);
          else if (strip.stop == 0 && start.strip.start == 0)
            start.strip = strip;
          else
            throw Error(part + ": stripping the end of a text, or twice, is not supported");
          return;
        }
        if (fused) throw Error(part + ": " + in_quotes(type) + " after 'Fuse' is not supported");
        if (type == "ByteLevel") {
          steps.emplace_back(FromByteLevel{});
          fused = true;
        } else if (type == "ByteFallback") {
          steps.emplace_back(ByteFallback{});
        } else if (type == "Replace") {
          steps.emplace_back(
              Replace{read_pattern(step, part), string_member(step, "content", part)});
        } else if (type == "Metaspace") {
          const Metaspace metaspace = read_metaspace(step, part);
          steps.emplace_back(Replace{Pattern::literal(metaspace.replacement), " "});
          if (metaspace.prepend != Metaspace::Scheme::kNever)
            start.drop_from_first = metaspace.replacement;
        } else {
          refuse_type(part, type);
        }
      });
}

/// Reads the tokens that the post-processor puts around a single text.
void read_post_processor(const json& document, Pipeline& pipeline) {
  for_each_step(
      document, "post_processor", "processors",
      [&](const json& step, const std::string& type, const std::string& part) {
        if (type == "ByteLevel") return;  // changes offsets, not tokens
        if (type != "TemplateProcessing") refuse_type(part, type);
        std::vector<TokenId> before, after;
        bool text_seen = false;
        for (const json& item : array_member(step, "single", part)) {
          if (optional_member(item, "Sequence", part)) {
            if (std::exchange(text_seen, true)) throw Error(part + ": the text appears twice");
            continue;
          }
          const std::string& name =
              string_member(member(item, "SpecialToken", part), "id", part + ".single");
          const json& entry = member(member(step, "special_tokens", part), name.c_str(), part);
          for (const json& id : array_member(entry, "ids", part)) {
            const std::int64_t value = integer(id, part + ": an id of " + in_quotes(name));
            pipeline.tokens.at(value);
            (text_seen ? after : before).push_back(static_cast<TokenId>(value));
          }
        }
        if (!text_seen) throw Error(part + ": the template has no place for the text");
        // A later processor of a sequence works on the result of the one before it.
        pipeline.before.insert(pipeline.before.begin(), before.begin(), before.end());
        pipeline.after.insert(pipeline.after.end(), after.begin(), after.end());
      });
}

/// "a b" or ["a", "b"]
std::pair<std::string_view, std::string_view> read_merge(const json& merge,
                                                         const std::string& part) {
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  throw Error(part + " is neither \"a b\" nor [\"a\", \"b\"]");
}

void read_model(const json& model, Pipeline& pipeline) {
  const std::string part = "model";
  if (optional_member(model, "type", part) && string_member(model, "type", part) != "BPE")
    refuse_type(part, string_member(model, "type", part));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (optional_member(model, key, part) && !string_member(model, key, part).empty())
      throw Error(part + ": '" + key + "' is not supported");
  if (const json* dropout = optional_member(model, "dropout", part))
    if (!dropout->is_number() || dropout->get<double>() != 0)
      throw Error(part + ": 'dropout' is not supported: it makes the tokens random");

  Bpe& bpe = pipeline.model;
  const json& vocabulary = member(model, "vocab", part);
  if (!vocabulary.is_object()) throw Error(part + ": 'vocab' is not an object");
  bpe.vocabulary.reserve(vocabulary.size());
  for (const auto& [text, id] : vocabulary.items()) {
    if (text.empty()) throw Error(part + ".vocab: a token is empty");
    const std::int64_t value = integer(id, part + ".vocab: the id of " + in_quotes(text));
    pipeline.tokens.add(text, value);
    bpe.vocabulary.emplace(text, static_cast<TokenId>(value));
  }
  std::uint32_t rank = 0;
  for (const json& merge : array_member(model, "merges", part)) {
    const std::string here = "model.merges[" + std::to_string(rank) + "]";
    const auto [left, right] = read_merge(merge, here);
    add_merge(bpe, left, right, rank++, here);
  }
  bpe.ignore_merges = bool_member(model, "ignore_merges", false, part);
  bpe.fuse_unknown = bool_member(model, "fuse_unk", false, part);
  if (optional_member(model, "unk_token", part)) {
    bpe.unknown = find(bpe.vocabulary, string_member(model, "unk_token", part));
    if (!bpe.unknown) throw Error(part + ": 'unk_token' is not in the vocabulary");
  }
  if (bool_member(model, "byte_fallback", false, part)) bpe.byte_tokens = find_byte_tokens(bpe);
}

void read_added_tokens(const json& document, Pipeline& pipeline) {
  const json* list = optional_member(document, "added_tokens", "the document");
  if (!list) return;
  if (!list->is_array()) throw Error("added_tokens is not an array");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const json& entry = (*list)[i];
    const std::string part = "added_tokens[" + std::to_string(i) + "]";
    const std::string& text = string_member(entry, "content", part);
    const std::int64_t id = integer(member(entry, "id", part), part + ": 'id'");
    if (text.empty()) continue;  // as the reference library does
    if (const auto known = find(pipeline.model.vocabulary, text); known && *known != id)
      throw Error(part + ": " + in_quotes(text) + " has id " + std::to_string(id) +
                  " here and id " + std::to_string(*known) + " in model.vocab");
    Token& token =
        in_context("reading " + part, [&]() -> Token& { return pipeline.tokens.add(text, id); });
    token.special = bool_member(entry, "special", false, part);
    const bool normalized = bool_member(entry, "normalized", !token.special, part);
    // The reference library decodes it as it is matched (0.23; older ones as it is written).
    token.piece = normalized ? normalize(pipeline.normalizer, text, Bounds(text.size())) : text;
    AddedToken added{
        token.piece, static_cast<TokenId>(id), bool_member(entry, "lstrip", false, part),
        bool_member(entry, "rstrip", false, part), bool_member(entry, "single_word", false, part)};
    (normalized ? pipeline.normalized_added : pipeline.raw_added).add(std::move(added));
  }
}

std::size_t count_of(const json& document, const char* key) {
  const json* found = optional_member(document, key, "the document");
  return found ? found->size() : 0;
}

Pipeline read_pipeline(const json& document) {
  const json& model = member(document, "model", "the document");
  const json* vocabulary = optional_member(model, "vocab", "model");
  Pipeline pipeline(count_of(document, "added_tokens") + (vocabulary ? vocabulary->size() : 0));
  // "truncation" and "padding" are for batches of training data; transformers resets them too.
  pipeline.normalizer = read_normalizer(document);
  pipeline.pre_tokenizer = read_pre_tokenizer(document);
  read_model(model, pipeline);
  read_added_tokens(document, pipeline);
  read_post_processor(document, pipeline);
  PieceSteps steps;
  read_decoder(document, steps, pipeline.text_start);
  for (Token& token : pipeline.tokens)
    token.piece = make_piece(steps, token.piece.empty() ? token.text : token.piece);
  return pipeline;
}

/// The lines "a b" of a merges.txt, as a list.
json read_merges(const std::filesystem::path& file) {
  const std::string text = read_file(file, kMostTokenizerBytes, FileKind::kOfModel);
  json merges = json::array();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool version = begin == 0 && line.starts_with("#version");
    if (!version && !line.empty()) merges.push_back(line);
    begin = end + 1;
  }
  return merges;
}

/// Reads a special token of tokenizer_config.json: "</s>", or {"content": "</s>", ...}.
json special_token(const json& config, const char* key, const json& vocabulary) {
  const json& given = member(config, key, "the document");
  json token = given.is_string() ? json{{"content", given}} : given;
  const std::string& text = string_member(token, "content", key);
  if (!vocabulary.contains(text))
    throw Error(std::string(key) + ": " + in_quotes(text) + " is not in vocab.json");
  token["id"] = vocabulary[text];
  token["special"] = true;
  return token;
}

/// vocab.json, merges.txt and tokenizer_config.json of a GPT2Tokenizer (OPT has them) as the
/// tokenizer.json that they stand for. Throws Error naming another class.
json read_vocab_and_merges(const std::filesystem::path& directory) {
  json document{{"model", {{"type", "BPE"}, {"merges", read_merges(directory / "merges.txt")}}},
                {"decoder", {{"type", "ByteLevel"}}}};
  const json& vocabulary = document["model"]["vocab"] =
      read_json(directory / "vocab.json", kMostTokenizerBytes, FileKind::kOfModel);
  if (!vocabulary.is_object())
    throw Error((directory / "vocab.json").string() + " is not an object");
  const auto file = directory / "tokenizer_config.json";
  const json config = read_json(file, kMostConfigBytes, FileKind::kOfModel);
  return in_context("reading " + file.string(), [&] {
    const std::string& kind = string_member(config, "tokenizer_class", "the document");
    if (kind != "GPT2Tokenizer" && kind != "GPT2TokenizerFast")
      throw Error("vocab.json and merges.txt of a " + in_quotes(kind) +
                  " are not read; save a tokenizer.json with transformers' AutoTokenizer(...)"
                  ".save_pretrained()");
    document["pre_tokenizer"] = {
        {"type", "ByteLevel"},
        {"add_prefix_space", bool_member(config, "add_prefix_space", false, "the document")}};
    json& added = document["added_tokens"] = json::array();
    if (const json* tokens = optional_member(config, "added_tokens_decoder", "the document")) {
      for (const auto& [key, token] : tokens->items()) {
        std::int64_t id = 0;
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
        if (error != std::errc() || end != key.data() + key.size() || !token.is_object())
          throw Error("added_tokens_decoder: " + in_quotes(key) + " is not the id of a token");
        added.push_back(token);
        added.back()["id"] = id;
      }
    } else {
      for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"})
        if (optional_member(config, key, "the document"))
          added.push_back(special_token(config, key, vocabulary));
    }
    if (bool_member(config, "add_bos_token", false, "the document")) {
      const json begin = special_token(config, "bos_token", vocabulary);
      const std::string& text = begin["content"].get_ref<const std::string&>();
      document["post_processor"] = {
          {"type", "TemplateProcessing"},
          {"single", {{{"SpecialToken", {{"id", text}}}}, {{"Sequence", {{"id", "A"}}}}}},
          {"special_tokens", {{text, {{"ids", json::array({begin["id"]})}}}}}};
    }
    return std::move(document);
  });
}

}  // namespace

Pipeline pipeline_from_json(const std::filesystem::path& file) {
  const json document = read_json(file, kMostTokenizerBytes, FileKind::kOfModel);
  return in_context("reading " + file.string(), [&] { return read_pipeline(document); });
}

Pipeline pipeline_from_vocab_and_merges(const std::filesystem::path& directory) {
  const json document = read_vocab_and_merges(directory);
  return in_context("reading " + (directory / "vocab.json").string() + " and merges.txt",
                    [&] { return read_pipeline(document); });
}

}  // namespace canopy::text
