#include "src/jinja/parse/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "src/base/utf8.h"
#include "src/jinja/characters.h"
#include "src/jinja/error.h"

namespace canopy::jinja {

namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) {
  return is_ascii_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// The value of a digit in bases up to 16, or 16.
unsigned digit_value(char c) {
  if (is_ascii_digit(c)) return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return 16;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() && {
    while (at_ < source_.size()) read_data();
    add(TokenKind::kEnd, source_.size(), "");
    return std::move(tokens_);
  }

 private:
  bool starts(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void add(TokenKind kind, std::size_t offset, std::string text) {
    tokens_.push_back({kind, static_cast<std::uint32_t>(offset), std::move(text)});
  }
  void skip_spaces() { at_ = source_.size() - strip_left(source_.substr(at_)).size(); }
  void skip_line_end() {
    if (starts("\n")) ++at_;
  }
  /// The '-' or '+' at a tag's begin, taken.
  char take_sign() { return starts("-") || starts("+") ? source_[at_++] : ' '; }

  /// Finds the next '{%', '{{' or '{#'; npos if there is none.
  std::size_t next_tag(std::size_t from) const {
    std::size_t tag = source_.find('{', from);
    while (tag != std::string_view::npos) {
      const std::string_view kind = source_.substr(tag + 1, 1);
      if (!kind.empty() && std::string_view("%{#").find(kind) != std::string_view::npos) break;
      tag = source_.find('{', tag + 1);
    }
    return tag;
  }

  /// Text up to the next tag, and that tag.
  void read_data() {
    const std::size_t begin = at_;
    const bool at_line_start = begin == 0 || source_[begin - 1] == '\n';
    const std::size_t tag = next_tag(begin);
    if (tag == std::string_view::npos) {
      at_ = source_.size();
      return add(TokenKind::kData, begin, std::string(source_.substr(begin)));
    }
    const char kind = source_[tag + 1];
    at_ = tag + 2;
    const char sign = take_sign();
    std::string_view data = source_.substr(begin, tag - begin);
    if (sign == '-')
      data = strip_right(data);
    else if (sign != '+' && kind != '{')
      data = without_indent(data, at_line_start);
    if (!data.empty()) add(TokenKind::kData, begin, std::string(data));
    if (kind == '#') return read_comment(tag);
    if (kind == '%' && read_raw(tag)) return;
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, tag, "");
    read_tag(tag, kind == '%');
  }

  /// Leaves out the spaces of its last line, where nothing else is on it.
  static std::string_view without_indent(std::string_view data, bool at_line_start) {
    const std::size_t newline = data.rfind('\n');
    if (newline == std::string_view::npos && !at_line_start) return data;
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    return strip_left(data.substr(line)).empty() ? data.substr(0, line) : data;
  }

  /// Skips the space that a block or a comment whose last sign is `sign` takes after it.
  void skip_after_block(char sign) {
    if (sign == '-') skip_spaces();
    if (sign == ' ') skip_line_end();
  }

  void read_comment(std::size_t tag) {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail_at(source_, tag, "the comment has no end '#}'");
    const char last = end > at_ ? source_[end - 1] : ' ';
    at_ = end + 2;
    skip_after_block(last == '-' || last == '+' ? last : ' ');
  }

  /// The end of a block tag, taken with what it trims; its sign, or nothing if it is not here.
  std::optional<char> take_block_end() {
    char sign = ' ';
    if (starts("-%}") || starts("+%}"))
      sign = source_[at_++];
    else if (!starts("%}"))
      return {};
    at_ += 2;
    return sign;
  }

  /// {% raw %} up to {% endraw %}, if that is what begins here.
  bool read_raw(std::size_t tag) {
    const std::size_t inside = at_;
    skip_spaces();
    if (!take_word("raw")) return at_ = inside, false;
    skip_spaces();
    const std::optional<char> sign = take_block_end();
    if (!sign) return at_ = inside, false;
    if (*sign == '-') skip_spaces();
    const std::size_t begin = at_;
    for (std::size_t end = begin; (end = source_.find("{%", end)) != std::string_view::npos;
         ++end) {
      at_ = end + 2;
      const char before = take_sign();
      skip_spaces();
      if (!take_word("endraw")) continue;
      skip_spaces();
      const std::optional<char> after = take_block_end();
      if (!after) continue;
      std::string_view data = source_.substr(begin, end - begin);
      if (before == '-')
        data = strip_right(data);
      else if (before != '+')
        data = without_indent(data, source_[begin - 1] == '\n');
      if (!data.empty()) add(TokenKind::kData, begin, std::string(data));
      skip_after_block(*after);
      return true;
    }
    fail_at(source_, tag, "the block 'raw' has no end '{% endraw %}'");
  }
  bool take_word(std::string_view word) {
    if (!starts(word)) return false;
    at_ += word.size();
    return true;
  }

  /// The tokens of a tag, up to its end.
  void read_tag(std::size_t tag, bool block) {
    std::string open;  // brackets; inside them '}}' is two of them
    for (;;) {
      skip_spaces();
      if (at_ == source_.size())
        fail_at(source_, tag, std::string("the tag has no end '") + (block ? "%}'" : "}}'"));
      if (open.empty() && take_end(block)) return;
      const char c = source_[at_];
      if (is_ascii_digit(c))
        read_number();
      else if (is_name_byte(c))
        read_name();
      else if (c == '\'' || c == '"')
        read_string(c);
      else
        read_operator(open);
    }
  }

  bool take_end(bool block) {
    const std::size_t at = at_;
    if (block) {
      const std::optional<char> sign = take_block_end();
      if (!sign) return false;
      skip_after_block(*sign);
      add(TokenKind::kBlockEnd, at, "");
      return true;
    }
    const bool trims = starts("-}}");
    if (!trims && !starts("}}")) return false;
    at_ += trims ? 3 : 2;
    if (trims) skip_spaces();
    add(TokenKind::kPrintEnd, at, "");
    return true;
  }

  void read_name() {
    const std::size_t begin = at_;
    while (at_ < source_.size() && is_name_byte(source_[at_])) ++at_;
    add(TokenKind::kName, begin, std::string(source_.substr(begin, at_ - begin)));
  }

  /// Digits that underscores may join, appended to `out` without them.
  void take_digits(unsigned base, std::string& out) {
    while (at_ < source_.size()) {
      const bool joined = source_[at_] == '_' && at_ + 1 < source_.size();
      if (digit_value(source_[at_ + joined]) >= base) return;
      at_ += joined;
      out += source_[at_++];
    }
  }

  void read_number() {
    const std::size_t begin = at_;
    const bool behind_dot = begin > 0 && source_[begin - 1] == '.';
    std::string text;
    TokenKind kind = TokenKind::kInteger;
    const auto digit_at = [&](std::size_t i) {
      return i < source_.size() && is_ascii_digit(source_[i]);
    };
    if (starts("0x") || starts("0X") || starts("0o") || starts("0O") || starts("0b") ||
        starts("0B"))
      return read_based_number();
    take_digits(10, text);
    if (!behind_dot && starts(".") && digit_at(at_ + 1)) {
      kind = TokenKind::kFloat;
      text += source_[at_++];
      take_digits(10, text);
    }
    if (!behind_dot && (starts("e") || starts("E"))) {
      const bool sign =
          at_ + 1 < source_.size() && (source_[at_ + 1] == '+' || source_[at_ + 1] == '-');
      if (digit_at(at_ + 1 + sign)) {
        kind = TokenKind::kFloat;
        text += source_.substr(at_, 1 + sign);
        at_ += 1 + sign;
        take_digits(10, text);
      }
    }
    add(kind, begin, std::move(text));
  }

  void read_based_number() {
    const std::size_t begin = at_;
    const char letter = source_[at_ + 1];
    const unsigned base = letter == 'x' || letter == 'X'   ? 16
                          : letter == 'o' || letter == 'O' ? 8
                                                           : 2;
    at_ += 2;
    std::string digits;
    take_digits(base, digits);
    if (digits.empty()) fail_at(source_, begin, "the number has no digits");
    std::uint64_t value = 0;
    for (const char c : digits) {
      if (value >> 58 != 0) fail_at(source_, begin, "the integer does not fit 63 bits");
      value = value * base + digit_value(c);
    }
    add(TokenKind::kInteger, begin, std::to_string(value));
  }

  void read_string(char quote) {
    const std::size_t begin = at_++;
    std::string text;
    for (;;) {
      if (at_ == source_.size()) fail_at(source_, begin, "the string has no end");
      const char c = source_[at_++];
      if (c == quote) break;
      if (c == '\\' && at_ < source_.size())
        read_escape(text);
      else
        text += c;
    }
    add(TokenKind::kString, begin, std::move(text));
  }

  /// Reads what follows a backslash, as Python does; what Python does not know stays as it is.
  void read_escape(std::string& text) {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[at_++];
    if (const std::size_t i = kLetters.find(c); i != std::string_view::npos) {
      text += kMeanings[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code(text, 16, c == 'x' ? 2 : c == 'u' ? 4 : 8, /*exactly=*/true);
    } else if (digit_value(c) < 8) {
      --at_;
      append_code(text, 8, 3, /*exactly=*/false);
    } else if (c == 'N') {
      fail_at(source_, at_ - 2, "names of characters (\\N{...}) are not supported");
    } else if (c != '\n') {
      text += '\\';
      text += c;
    }
  }

  void append_code(std::string& text, unsigned base, int digits, bool exactly) {
    const std::size_t begin = at_;
    std::uint32_t code = 0;
    int taken = 0;
    for (; taken < digits && at_ < source_.size() && digit_value(source_[at_]) < base; ++taken)
      code = code * base + digit_value(source_[at_++]);
    if ((exactly && taken < digits) || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      fail_at(source_, begin, "the escape in the string is no character");
    append_utf8(text, code);
  }

  void read_operator(std::string& open) {
    static constexpr std::array<std::string_view, 25> kOperators{
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", ",", "|"};
    const std::size_t begin = at_;
    std::string_view found;
    for (const std::string_view text : kOperators)
      if (found.empty() && starts(text)) found = text;
    if (found.empty())
      fail_at(source_, begin,
              "unexpected " + in_quotes(source_.substr(at_, utf8_length(source_[at_]))));
    at_ += found.size();
    static constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (kOpening.find(found) != std::string_view::npos) open += found;
    if (const std::size_t i = kClosing.find(found); i != std::string_view::npos) {
      if (open.empty() || open.back() != kOpening[i])
        fail_at(source_, begin, "unexpected '" + std::string(found) + "'");
      open.pop_back();
    }
    add(TokenKind::kOperator, begin, std::string(found));
  }

  std::string_view source_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace canopy::jinja
