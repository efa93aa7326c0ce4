#pragma once
// Room src/text: text and tokens: tokenizers of all containers, stop strings, constraints on the
// next token.
// In: a model's tokenizer files. Out: ids for text and text for ids, as the model's own library has
// them.
// Must not know: weights, devices, chat formats.
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/metadata.h"
#include "src/base/types.h"

namespace canopy {

/// A choice: encode() adds what the model's template asks for (BOS, EOS), or not.
/// `add_special_tokens` of Hugging Face.
enum class AddSpecial : bool { kNo, kYes };

/// Bytes to tokens and back. Immutable after construction: any number of threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Special tokens written out in the text ("<|im_start|>") are recognised, as in llama.cpp and
  /// Hugging Face. O(n log n). Bytes that are not UTF-8 are treated as the reference library treats
  /// U+FFFD. Throws Stopped on request; Error if the tokenizer's own steps make the text more than
  /// eight times as long.
  virtual std::vector<TokenId> encode(std::string_view text, AddSpecial add,
                                      const std::stop_token& stop = {}) const = 0;
  /// encode() of a text that others have written parts of. `mark` is a character that stands in
  /// none of it but where quote_specials() has put it: a special token that it cuts is text, and
  /// the mark itself is not.
  virtual std::vector<TokenId> encode_marked(std::string_view text, std::string_view mark,
                                             const std::stop_token& stop = {}) const = 0;
  /// `text` with the mark in each special token that encode() would find in it.
  virtual std::string quote_specials(std::string_view text, std::string_view mark) const = 0;
  /// The raw bytes that the token stands for; may split a UTF-8 character; empty for special
  /// tokens, and for ids that only the model's embedding has. Throws Error if the id is outside the
  /// vocabulary.
  virtual std::string_view piece(TokenId token) const = 0;
  /// All tokens at once, as the reference library's decode(skip_special_tokens=False) where
  /// `specials` is kYes. Always UTF-8: malformed bytes become U+FFFD as in TextStream. (For byte
  /// fallback the reference replaces every byte of a run that has one malformed part.)
  virtual std::string decode(std::span<const TokenId> tokens, AddSpecial specials) const = 0;
  /// The token's own string in the vocabulary ("Ġthe", "<0x0A>"): what two vocabularies are
  /// compared by. Empty if unused.
  virtual std::string_view token_string(TokenId token) const = 0;
  virtual bool is_special(TokenId token) const = 0;
  virtual bool ends_text(TokenId token) const = 0;
  virtual int vocab() const = 0;
};
/// Reads tokenizer.json in `model` when that is a directory; where it is missing, Mistral's
/// tekken.json, or GPT-2's vocab.json and merges.txt; else GGUF metadata ("tokenizer.ggml.*").
/// `model_vocab`: rows of the model's embedding; ids up to there that the files do not name belong
/// to the vocabulary too, without a text. Throws Error naming the file and the part (normalizer,
/// pre-tokenizer, ...) that is not supported.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& model,
                                          const Metadata& metadata, int model_vocab = 0);

/// Why `draft` cannot propose tokens to `target`: the first id whose strings differ, and both
/// strings. Nothing if the vocabularies agree; unused ids (a padded tail) agree with missing ones.
std::optional<std::string> vocabulary_mismatch(const Tokenizer& target, const Tokenizer& draft);

/// Joins pieces and lets through only whole UTF-8 characters; a sequence that can no longer become
/// valid comes out as U+FFFD. All parts together are decode(tokens, kNo), except that a stream
/// continues a text: it keeps the space that some tokenizers take from a text's start.
/// One thread at a time.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  std::string push(TokenId token);
  std::string flush();  // the end of the text: what was held back is malformed

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
};

}  // namespace canopy
