#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/types.h"

namespace canopy {

/// Finds what followed the last tokens of a text and a path after it where they stood in the text
/// before: the token after the longest such match, of equal ones the latest. Plain data.
class CopyIndex {
 public:
  static constexpr std::size_t kLeastMatch = 2, kLongestMatch = 8;

  struct Match {
    TokenId next = 0;
    int length = 0;  // tokens
    bool operator==(const Match&) const = default;
  };

  /// Takes over what the text has grown by; of a text that is not longer than the one before all is
  /// read anew.
  void follow(std::span<const TokenId> text);
  /// Looks at the latest places alone where the last two tokens stood often. `path`: its last
  /// tokens, as many as kLongestMatch where there are.
  std::optional<Match> find(std::span<const TokenId> path) const;

  /// Bytes for a text of at most this many tokens. Pure.
  static std::size_t host_bytes(int context);

 private:
  static constexpr int kMostPlaces = 64;  // that a search looks at

  std::size_t bucket_of(TokenId before, TokenId last) const;
  void grow_buckets();
  void enter(std::size_t place);

  std::vector<TokenId> text_;
  // Places of tokens that have two before them, by a hash of those two: the latest, and for each
  // the one before it; 0 ends the chain.
  std::vector<std::int32_t> latest_, earlier_;
};

}  // namespace canopy
