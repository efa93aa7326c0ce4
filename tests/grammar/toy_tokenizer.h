#pragma once
#include <string>
#include <utility>
#include <vector>

#include "src/text/tokenizer.h"

namespace canopy {

/// A vocabulary of these pieces; then an end of text, and a special token.
class ToyTokenizer : public Tokenizer {
 public:
  explicit ToyTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    pieces_.emplace_back();
    pieces_.emplace_back();
  }
  /// Every byte, and pieces that cross what JSON sets apart: quotes, escapes, characters, numbers.
  static std::vector<std::string> json_pieces() {
    std::vector<std::string> pieces;
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    for (const char* piece :
         {"{\"",     "\":",        "\": ",     "\",",   "\", \"",     "\"}",    "]}",
          "}}",      "true",       "null",     "name",  " \"",        "\n  ",   "\n    \"",
          "é",       "\xF0\x9F",   "\x98\x80", "\\u",   "\\\"",       "00",     "123",
          "-1",      ".5",         "a\"",      "ab",    "abc\":",     "\"a\":", "x\\n\"",
          "\\ud83d", "\\ude00",    "\"],\"",   "[[",    "{\"a\": [",  "e1",     "9\n",
          "\"\"",    "a",          "bé\"",     "",      "\x80\"",     "\xC3",   "n\xC3",
          "aaaa",    "aaaaaaaa\"", "]\n",      ", ",    "[\"b\", \"", "\\",     "u00",
          "41\"",    "1, 2",       "\":{\"",   "\"\n}", "{}",         "[]"})
      pieces.emplace_back(piece);
    return pieces;
  }

  TokenId end() const { return vocab() - 2; }
  TokenId special() const { return vocab() - 1; }
  std::vector<TokenId> encode(std::string_view, AddSpecial, const std::stop_token&) const override {
    return {};
  }
  std::vector<TokenId> encode_marked(std::string_view, std::string_view,
                                     const std::stop_token&) const override {
    return {};
  }
  std::string quote_specials(std::string_view text, std::string_view) const override {
    return std::string(text);
  }
  std::string_view piece(TokenId token) const override {
    return pieces_[static_cast<std::size_t>(token)];
  }
  std::string decode(std::span<const TokenId> tokens, AddSpecial) const override {
    std::string text;
    for (const TokenId token : tokens) text += piece(token);
    return text;
  }
  std::string_view token_string(TokenId token) const override { return piece(token); }
  bool is_special(TokenId token) const override { return token >= end(); }
  bool ends_text(TokenId token) const override { return token == end(); }
  int vocab() const override { return static_cast<int>(pieces_.size()); }

 private:
  std::vector<std::string> pieces_;
};

}  // namespace canopy
