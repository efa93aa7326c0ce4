#pragma once
#include <span>
#include <string>
#include <string_view>

namespace canopy::text {

/// The way in which a byte-level tokenizer of a GGUF file cuts words, and what goes with it.
struct GgufPreTokenizer {
  std::span<const std::string_view> names;  // values of tokenizer.ggml.pre; the first is written
  /// Regular expressions in the dialect of tokenizer.json, whose matches become pieces of their
  /// own; each cuts further what the one before left.
  std::span<const std::string_view> patterns;
  bool digits_first = false;  // numerals are cut off one by one before that
  bool gpt2_last = false;     // and words as GPT-2 has them after it
  bool nfc = false;           // texts are normalised
  bool whole_words = false;   // a word that is a token is not merged from smaller ones
  bool adds_bos = false;      // if the file has a BOS and does not say
};

/// All that are known. Source of the patterns: the tokenizer.json of the models that the names
/// stand for; "default": llama.cpp.
std::span<const GgufPreTokenizer> gguf_pre_tokenizers();
/// Null if there is none of this name.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);
/// "smollm, gpt-2, ... and default", for messages.
std::string gguf_pre_tokenizer_names();

}  // namespace canopy::text
