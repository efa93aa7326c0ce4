#include "src/text/token_table.h"

#include "src/base/error.h"
#include "src/base/utf8.h"

namespace canopy::text {

Token& TokenTable::add(std::string_view text, std::int64_t id) {
  if (id < 0 || static_cast<std::uint64_t>(id) >= limit_) {
    throw Error("token " + in_quotes(text) + " has id " + std::to_string(id) +
                ", which is outside what a vocabulary of this size can use (0 to " +
                std::to_string(limit_ - 1) + ")");
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  Token& token = tokens_[index];
  if (token.text.empty()) {
    token.text = text;
  } else if (token.text != text) {
    throw Error("id " + std::to_string(id) + " belongs to two tokens, " + in_quotes(token.text) +
                " and " + in_quotes(text));
  }
  return token;
}

Token& TokenTable::at(std::int64_t id) {
  if (!contains(id)) {
    throw Error("token " + std::to_string(id) + " is outside the vocabulary of " +
                std::to_string(tokens_.size()) + " tokens");
  }
  return tokens_[static_cast<std::size_t>(id)];
}

}  // namespace canopy::text
