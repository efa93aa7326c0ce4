#include "src/grammar/pattern/syntax.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/grammar/limits.h"
#include "src/grammar/pattern/expressions.h"

namespace canopy::grammar {
namespace {

constexpr char32_t kNone = ~char32_t{0};  // no character: the end of the text

/// The control characters that letters after a backslash stand for.
constexpr std::pair<char32_t, char32_t> kControls[]{
    {'t', '\t'}, {'n', '\n'}, {'v', '\v'}, {'f', '\f'}, {'r', '\r'}};

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_letter(char32_t c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

class Reader {
 public:
  Reader(Syntax& syntax, std::string_view text) : syntax_(syntax) {
    if (text.size() > kMostPatternBytes)
      throw Error("the pattern has more than " + std::to_string(kMostPatternBytes) + " bytes");
    for (std::size_t i = 0; i < text.size();) {
      const Utf8Step step = utf8_step(text.substr(i));
      require(step.kind == Utf8Step::Kind::kCharacter, "the pattern is not UTF-8");
      text_.push_back(step.value);
      i += step.bytes;
    }
  }

  std::size_t read() {
    const std::size_t all = choice(0);
    if (peek() == ')') fail("a \")\" that closes no group", at_);
    return all;
  }

 private:
  [[noreturn]] static void fail(const std::string& what, std::size_t at) {
    throw Error("the pattern has " + what + " at character " + std::to_string(at + 1));
  }
  [[noreturn]] static void refuse(const std::string& what, std::size_t at) {
    fail(what + ", which is not supported,", at);
  }

  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : kNone;
  }
  bool take(char32_t c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    for (std::size_t i = 0; i < word.size(); ++i)
      if (peek(i) != static_cast<unsigned char>(word[i])) return false;
    at_ += word.size();
    return true;
  }

  std::size_t add(Piece piece) {
    syntax_.pieces.push_back(std::move(piece));
    return syntax_.pieces.size() - 1;
  }
  std::size_t character(const CodePoints& set, std::size_t place) {
    auto& sets = syntax_.sets;
    const auto known = std::ranges::find(sets, set);
    const auto index = static_cast<std::size_t>(known - sets.begin());
    if (known == sets.end()) sets.push_back(set);
    return add({.kind = Piece::Kind::kCharacter, .set = index, .place = place + 1});
  }

  std::size_t choice(int level) {
    if (level > kMostPatternLevels)
      fail("more than " + std::to_string(kMostPatternLevels) + " groups inside each other", at_);
    Piece piece{.kind = Piece::Kind::kChoice, .place = at_ + 1};
    do {
      Piece part{.kind = Piece::Kind::kSequence, .place = at_ + 1};
      while (peek() != kNone && peek() != '|' && peek() != ')') part.inner.push_back(term(level));
      piece.inner.push_back(add(std::move(part)));
    } while (take('|'));
    return piece.inner.size() == 1 ? piece.inner[0] : add(std::move(piece));
  }

  std::size_t term(int level) {
    const std::size_t start = at_;
    if (take('^')) return add({.kind = Piece::Kind::kBegin, .place = start + 1});
    if (take('$')) return add({.kind = Piece::Kind::kEnd, .place = start + 1});
    return quantified(atom(level), start);
  }

  std::size_t atom(int level) {
    const std::size_t start = at_;
    if (take('(')) return group(level, start);
    if (take('[')) return bracketed(start);
    if (take('\\')) return escape(start);
    if (take('.')) return character(line_ends().others(), start);
    const char32_t c = peek();
    if (c == '*' || c == '+' || c == '?' || (c == '{' && bounds()))
      fail("a quantifier with nothing to repeat", start);
    ++at_;
    return character(CodePoints({{c, c}}), start);
  }

  std::size_t group(int level, std::size_t start) {
    auto kind = Piece::Kind::kSequence;
    if (take("?:")) {
    } else if (take("?=")) {
      kind = Piece::Kind::kAhead;
    } else if (take("?!")) {
      kind = Piece::Kind::kNotAhead;
    } else if (take("?<=") || take("?<!")) {
      refuse("a look behind", start);
    } else if (take("?<")) {
      while (peek() != kNone && peek() != '>') ++at_;
      if (!take('>')) fail("a group's name that does not end", start);
    } else if (peek() == '?') {
      refuse("a group with flags", start);
    }
    const std::size_t inside = choice(level + 1);
    if (!take(')')) fail("a group that is not closed", start);
    if (kind == Piece::Kind::kSequence) return inside;
    return add({.kind = kind, .inner = {inside}, .place = start + 1});
  }

  struct Bounds {
    std::uint32_t fewest = 0, most = 0;
    std::size_t characters = 0;
  };

  /// Reads bounds in braces, if they stand here: "{2}", "{2,}", "{2,3}".
  std::optional<Bounds> bounds() const {
    std::size_t i = 1;
    const auto number = [&]() -> std::optional<std::uint32_t> {
      if (!is_digit(peek(i))) return std::nullopt;
      std::uint64_t value = 0;
      for (; is_digit(peek(i)); ++i)
        value = std::min<std::uint64_t>(value * 10 + (peek(i) - '0'), kMostCount + 1);
      if (value > kMostCount) fail("a count of more than " + std::to_string(kMostCount), at_);
      return static_cast<std::uint32_t>(value);
    };
    const auto fewest = number();
    if (!fewest) return std::nullopt;
    std::uint32_t most = *fewest;
    if (peek(i) == ',') {
      ++i;
      most = number().value_or(kEndless);
    }
    if (peek(i) != '}') return std::nullopt;
    if (most < *fewest) fail("a smallest count that is larger than the largest", at_);
    return Bounds{.fewest = *fewest, .most = most, .characters = i + 1};
  }

  std::size_t quantified(std::size_t inside, std::size_t start) {
    Bounds counts;
    if (take('*')) {
      counts = {.fewest = 0, .most = kEndless};
    } else if (take('+')) {
      counts = {.fewest = 1, .most = kEndless};
    } else if (take('?')) {
      counts = {.fewest = 0, .most = 1};
    } else if (const auto given = peek() == '{' ? bounds() : std::nullopt) {
      counts = *given;
      at_ += counts.characters;
    } else {
      return inside;
    }
    take('?');  // as few as possible: the same texts
    return add({.kind = Piece::Kind::kRepeated,
                .inner = {inside},
                .fewest = counts.fewest,
                .most = counts.most,
                .place = start + 1});
  }

  /// Reads a set that a letter after a backslash names, in a class too.
  std::optional<CodePoints> named_set() {
    const char32_t c = peek();
    std::optional<CodePoints> set;
    if (c == 'd' || c == 'D') set = digits();
    if (c == 'w' || c == 'W') set = word_characters();
    if (c == 's' || c == 'S') set = white_space();
    if (set) ++at_;
    return set && c < 'a' ? set->others() : set;
  }

  std::size_t escape(std::size_t start) {
    if (const auto set = named_set()) return character(*set, start);
    const char32_t c = peek();
    if (c == 'b' || c == 'B') refuse("an edge of a word (\\b)", start);
    if (c == 'k' || (is_digit(c) && c != '0')) refuse("a reference back to a group", start);
    const char32_t value = escaped_character(start);
    return character(CodePoints({{value, value}}), start);
  }

  char32_t hex(int count, std::size_t start) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i, ++at_) {
      const char32_t c = peek();
      const char32_t lower = c | 0x20;
      if (is_digit(c))
        value = value * 16 + (c - '0');
      else if (is_letter(c) && lower <= 'f')
        value = value * 16 + (lower - 'a' + 10);
      else
        fail("an escape with too few hexadecimal digits", start);
    }
    return value;
  }

  /// Reads the character that stands after the backslash.
  char32_t escaped_character(std::size_t start) {
    const char32_t c = peek();
    if (c == kNone) fail("a backslash with nothing after it", start);
    if (c == 'p' || c == 'P') refuse("a property of Unicode (\\p)", start);
    ++at_;
    for (const auto& [letter, control] : kControls)
      if (c == letter) return control;
    if (c == '0' && !is_digit(peek())) return 0;
    if (c == 'c' && is_letter(peek())) return text_[at_++] % 32;
    if (c == 'x') return hex(2, start);
    if (c == 'u') return unicode(start);
    if (is_letter(c) || is_digit(c)) fail("an escape that has no meaning", start);
    return c;
  }

  char32_t unicode(std::size_t start) {
    if (take('{')) {
      char32_t value = 0;
      if (peek() == '}') fail("an escape with too few hexadecimal digits", start);
      while (!take('}')) {
        value = value * 16 + hex(1, start);
        if (value > kLastCodePoint) fail("an escape beyond the last character", start);
      }
      return checked(value, start);
    }
    const char32_t value = hex(4, start);
    if (value < 0xD800 || value > 0xDBFF || !take("\\u")) return checked(value, start);
    const char32_t low = hex(4, start);
    if (low < 0xDC00 || low > 0xDFFF) fail("half of a character", start);
    return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
  }

  static char32_t checked(char32_t value, std::size_t start) {
    if (value >= 0xD800 && value <= 0xDFFF) fail("half of a character", start);
    return value;
  }

  /// Reads a class after its opening bracket.
  std::size_t bracketed(std::size_t start) {
    const bool negated = take('^');
    std::vector<CodeRange> ranges;
    CodePoints named;
    while (!take(']')) {
      if (peek() == kNone) fail("a \"[\" that is not closed", start);
      const std::size_t place = at_;
      const auto first = member(named);
      const bool range = peek() == '-' && peek(1) != ']' && peek(1) != kNone;
      if (!range) {
        if (first) ranges.push_back({*first, *first});
        continue;
      }
      ++at_;
      const auto last = member(named);
      if (first && last) {
        if (*last < *first) fail("a range that ends before it begins", place);
        ranges.push_back({*first, *last});
        continue;
      }
      // Next to a set the hyphen stands for itself.
      ranges.push_back({'-', '-'});
      for (const auto& single : {first, last})
        if (single) ranges.push_back({*single, *single});
    }
    CodePoints set(std::move(ranges));
    set.add(named);
    return character(negated ? set.others() : set, start);
  }

  /// Reads a character of a class; nothing if it is a named set, which is added to `named`.
  std::optional<char32_t> member(CodePoints& named) {
    const std::size_t start = at_;
    if (!take('\\')) return text_[at_++];
    if (const auto set = named_set()) {
      named.add(*set);
      return std::nullopt;
    }
    if (take('b')) return '\b';
    return escaped_character(start);
  }

  Syntax& syntax_;
  std::vector<char32_t> text_;
  std::size_t at_ = 0;
};

}  // namespace

std::size_t Syntax::add(std::string_view text) { return Reader(*this, text).read(); }

}  // namespace canopy::grammar
