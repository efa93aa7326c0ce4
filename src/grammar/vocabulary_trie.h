#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/grammar/automaton.h"
#include "src/grammar/byte_trie.h"
#include "src/text/tokenizer.h"

namespace canopy::grammar {

/// The bytes of every token, arranged for masking, with what each token does inside of a JSON
/// string. Made once per tokenizer, which it does not keep. Immutable: any number of threads.
class VocabularyTrie {
 public:
  /// Throws Error if no token ends a text.
  explicit VocabularyTrie(const Tokenizer& tokenizer);

  /// A node of tokens(), read as the inside of a JSON string from between two characters.
  struct Inside {
    bool between = false;          // between two characters again, the string not closed
    std::uint16_t characters = 0;  // that were begun
    std::uint16_t escapes = 0;
  };
  /// A word that closes the string.
  struct Closer {
    std::uint32_t word = 0;
    std::uint32_t rest = 0;  // the node of rests() that it has after the quote
    std::uint16_t characters = 0;
    std::uint16_t escapes = 0;
  };
  static constexpr std::uint16_t kNotInside = 0xFFFF;
  struct Word {
    TokenId token = 0;
    std::uint16_t characters = kNotInside;  // begun inside, if it leaves the string open
    std::uint16_t escapes = 0;
  };

  int vocab() const { return vocab_; }
  /// Empty for tokens that no text has: special ones, ends, ids without bytes.
  std::string_view bytes_of(TokenId token) const;
  bool ends_text(TokenId token) const;
  const std::vector<TokenId>& ends() const { return ends_; }
  /// Bytes that are tokens of their own.
  const ByteSet& single_bytes() const { return single_bytes_; }
  std::uint32_t longest_token() const { return tokens_.depth; }

  const ByteTrie& tokens() const { return tokens_; }
  const std::vector<Word>& words() const { return words_; }        // of tokens()
  const std::vector<Inside>& inside() const { return inside_; }    // by node of tokens()
  const std::vector<Closer>& closers() const { return closers_; }  // in the order of words
  const ByteTrie& rests() const { return rests_; }
  /// The tokens that leave a string open from between two characters: all, those without escapes.
  const std::vector<std::uint32_t>& free_mask() const { return free_mask_; }
  const std::vector<std::uint32_t>& key_mask() const { return key_mask_; }

 private:
  void copy_bytes(const Tokenizer& tokenizer);
  void arrange();
  void read_as_text();

  int vocab_ = 0;
  std::string bytes_;
  std::vector<std::size_t> begin_;  // of each token's bytes, and the end
  std::vector<TokenId> ends_;
  ByteSet single_bytes_;
  ByteTrie tokens_, rests_;
  std::vector<Word> words_;
  std::vector<Inside> inside_;
  std::vector<Closer> closers_;
  std::vector<std::uint32_t> free_mask_, key_mask_;
};

}  // namespace canopy::grammar
