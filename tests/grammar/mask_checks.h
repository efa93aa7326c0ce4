#pragma once
// Masks against the plain definition: a token may follow if its bytes, read one by one, may.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/grammar/machine.h"
#include "src/grammar/schema/json_schema.h"
#include "src/grammar/token_mask.h"
#include "tests/grammar/toy_tokenizer.h"

namespace canopy::grammar {

inline const ToyTokenizer kTokenizer(ToyTokenizer::json_pieces());
inline const auto kVocabulary = std::make_shared<const VocabularyTrie>(kTokenizer);

inline std::shared_ptr<const Grammar> grammar_of(std::string_view schema) {
  return std::make_shared<const Grammar>(
      json_grammar(parse_ordered_json(schema, LargeIntegers::kKept)));
}

/// Reads a text byte by byte.
class ByteReader {
 public:
  explicit ByteReader(std::shared_ptr<const Grammar> grammar, ByteSet bytes = ByteSet().set())
      : machine_(std::move(grammar), bytes) {
    machine_.begin(stack_, readings_);
  }
  /// Returns true if the grammar has this whole text, read from the start.
  bool reads(std::string_view text) {
    stack_.clear();
    machine_.begin(stack_, readings_);
    return read(text) && complete();
  }
  bool read(std::string_view text) {
    for (const char byte : text) {
      Readings next;
      machine_.step(readings_, static_cast<std::uint8_t>(byte), stack_, next);
      readings_ = next;
      if (readings_.none()) return false;
    }
    return true;
  }
  /// Returns true if the text may go on so. The reader keeps its place.
  bool may_read(std::string_view text) {
    const Readings before = readings_;
    const std::size_t frames = stack_.size();
    const bool allowed = read(text);
    readings_ = before;
    stack_.resize(frames);
    return allowed;
  }
  bool complete() const { return readings_.complete; }
  std::size_t readings() const { return readings_.open.size(); }

 private:
  Machine machine_;
  Stack stack_;
  Readings readings_;
};

inline bool reads(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  return ByteReader(grammar).reads(text);
}

inline bool has(const std::vector<std::uint32_t>& mask, TokenId token) {
  return (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

inline std::vector<std::uint32_t> mask_for(const VocabularyTrie& vocabulary) {
  return std::vector<std::uint32_t>((static_cast<std::size_t>(vocabulary.vocab()) + 31) / 32);
}

/// Expects the mask at the reader's place to be that of the plain definition.
inline void expect_plain_mask(const std::vector<std::uint32_t>& mask, ByteReader& reader,
                              const VocabularyTrie& vocabulary) {
  for (TokenId token = 0; token < vocabulary.vocab(); ++token) {
    const std::string_view bytes = vocabulary.bytes_of(token);
    const bool expected =
        vocabulary.ends_text(token) ? reader.complete() : !bytes.empty() && reader.may_read(bytes);
    ASSERT_EQ(has(mask, token), expected) << "token " << token << ": " << bytes;
  }
}

}  // namespace canopy::grammar
