#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/types.h"

namespace canopy::text {

struct Token {
  std::string text;   // as the vocabulary spells it; empty: no such token
  std::string piece;  // the bytes it stands for
  bool special = false;
  bool ends_text = false;
};

/// All tokens by id. Ids may leave holes.
class TokenTable {
 public:
  /// `entries`: how many tokens the file lists. Ids far beyond that are refused, so that a corrupt
  /// file cannot ask for a table larger than itself.
  explicit TokenTable(std::size_t entries) : limit_(2 * entries + 65536) {}

  /// The entry for `text` at `id`, new or as it was. Throws Error if the id is out of bounds or
  /// belongs to another text.
  Token& add(std::string_view text, std::int64_t id);

  /// Unused ids up to `size` belong to the vocabulary as well: the model has rows for them.
  void pad_to(std::size_t size) { tokens_.resize(std::max(size, tokens_.size())); }

  std::size_t size() const { return tokens_.size(); }
  bool contains(std::int64_t id) const {
    return id >= 0 && static_cast<std::uint64_t>(id) < tokens_.size();
  }
  /// Throws Error naming the id if there is no such entry.
  Token& at(std::int64_t id);
  const Token& at(std::int64_t id) const { return const_cast<TokenTable*>(this)->at(id); }

  /// The text ends at this token. Ids outside the vocabulary, as files have them for "none", are
  /// ignored: the model's checkpoint has a note of them.
  void end_at(std::int64_t id) {
    if (contains(id)) at(id).ends_text = true;
  }

  std::vector<Token>::iterator begin() { return tokens_.begin(); }
  std::vector<Token>::iterator end() { return tokens_.end(); }

 private:
  std::size_t limit_;
  std::vector<Token> tokens_;
};

}  // namespace canopy::text
