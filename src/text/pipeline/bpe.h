#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/types.h"

namespace canopy::text {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
/// The tokens that a model may produce from text, without the added ones.
using Vocabulary = std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>>;
std::optional<TokenId> find(const Vocabulary& vocabulary, std::string_view text);

/// Pairs of neighbouring tokens that become one, and how urgently: a hash table.
class Merges {
 public:
  struct Merge {
    std::uint32_t rank;  // the lowest goes first
    TokenId token;
  };
  /// A pair added again takes the later rank, as in the reference library.
  void add(TokenId left, TokenId right, Merge merge);
  const Merge* find(TokenId left, TokenId right) const;

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t pair = kFree;
    Merge merge{};
  };
  Slot& slot_of(std::uint64_t pair);
  void grow();

  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  std::size_t used_ = 0;
};

/// Byte-pair encoding of one piece of text: characters to tokens, then merges, always the pair of
/// lowest rank, the leftmost of equals. Immutable once filled: any number of threads, each with its
/// own Scratch.
class Bpe {
 public:
  /// Memory that encode() reuses from piece to piece.
  struct Scratch {
    struct Symbol {
      TokenId token;  // kGone: merged into the one before
      std::uint32_t previous, next;
    };
    struct Candidate {
      std::uint64_t order;  // rank, then position
      TokenId token;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// Appends the tokens of `piece`: valid UTF-8, less than 4 GiB. O(n log n).
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

  Vocabulary vocabulary;
  Merges merges;
  bool ignore_merges = false;      // a piece that is a token stays whole
  bool fuse_unknown = false;       // a run of unknown characters is one unknown token
  std::optional<TokenId> unknown;  // without it, unknown characters vanish
  std::optional<std::array<TokenId, 256>>
      byte_tokens;  // spell unknown characters; -1: no such token

 private:
  void start(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const;
  void merge(Scratch& scratch) const;
};

/// Adds the merge of two tokens into the one that spells both. Throws Error naming `where` if any
/// of the three is not in the vocabulary.
void add_merge(Bpe& bpe, std::string_view left, std::string_view right, std::uint32_t rank,
               std::string_view where);
/// Makes each way to cut `token`, at a character, into two tokens of the vocabulary a merge of that
/// rank: for vocabularies whose tokens are ranked and whose merges are not listed.
void add_cuts(Bpe& bpe, std::string_view token, TokenId id, std::uint32_t rank);
/// Bounds the work of add_cuts() on the files that ask for it, in bytes of a token. The longest in
/// use are 76 (runs of one character).
inline constexpr std::size_t kLongestCut = 256;
std::array<TokenId, 256> find_byte_tokens(const Bpe& bpe);

/// "<0x0A>": how vocabularies with byte fallback name a byte.
std::string byte_token_name(unsigned char byte);
/// The byte that `token` names that way, or nothing.
std::optional<char> named_byte(std::string_view token);

}  // namespace canopy::text
