#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/types.h"
#include "src/text/pipeline/bpe.h"
#include "src/text/pipeline/pattern.h"

namespace canopy::text {

/// A token that is found in the text itself, before the model sees the rest.
struct AddedToken {
  std::string pattern;
  TokenId id = 0;
  bool left_strip = false, right_strip = false;  // takes the white space before, after it
  bool single_word = false;                      // not inside a word
};

/// A stretch of text, or (with a token) what an added token covers.
struct Segment {
  std::string_view text;
  std::optional<TokenId> token;
};

/// Finds added tokens: leftmost first, of those the longest. Immutable once filled: any number of
/// threads.
class AddedTokens {
 public:
  /// Throws Error if the pattern is longer than kLongest. A pattern added again replaces the first.
  void add(AddedToken token);
  /// Cuts `text` (valid UTF-8) into segments, none empty, in order.
  std::vector<Segment> split(std::string_view text) const;

  /// Bounds the work at one position; the longest in use are below 50.
  static constexpr std::size_t kLongest = 1024;

 private:
  const AddedToken* match(std::string_view text) const;
  bool inside_word(std::string_view before, std::string_view after) const;

  Pattern word_character_ = Pattern::regex(R"(\w)");
  std::unordered_map<std::string, AddedToken, StringHash, std::equal_to<>> tokens_;
  std::array<std::vector<std::uint16_t>, 256> lengths_;  // by first byte, longest first
};

}  // namespace canopy::text
