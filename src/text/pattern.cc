#include "src/text/pattern.h"

#include <array>
#include <cctype>
#include <limits>

#include "src/base/error.h"
#include "src/base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace canopy::text {

namespace {

// The members of Oniguruma's \s and \w; PCRE2's own differ (U+180E is a space there, marks are not
// word characters).
constexpr std::string_view kSpace = R"(\p{White_Space})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

struct FreeMatch {
  void operator()(pcre2_match_data* data) const noexcept { pcre2_match_data_free(data); }
};

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Rewrites Oniguruma's Ruby syntax as PCRE2's.
class Translator {
 public:
  explicit Translator(std::string_view source) : source_(source) {}

  std::string run() {
    while (at_ < source_.size()) {
      if (source_[at_] == '\\')
        escape();
      else if (in_class_)
        class_member();
      else
        plain();
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw Error("pattern '" + std::string(source_) + "': " + std::string(what) +
                " is not supported");
  }
  bool next_is(std::string_view text) const { return source_.substr(at_).starts_with(text); }
  void copy(std::size_t bytes) {
    out_ += source_.substr(at_, bytes);
    at_ += bytes;
  }

  void copy_through(std::string_view close) {
    const std::size_t found = source_.find(close, at_);
    copy(found == std::string_view::npos ? source_.size() - at_ : found + close.size() - at_);
  }

  void plain() {
    if (next_is("(?")) {
      // Ruby's m lets '.' match newlines, its s and x are other things again.
      for (std::size_t i = at_ + 2; i < source_.size() && std::isalpha(byte(i)); ++i)
        if (source_[i] != 'i') refuse("a flag other than i");
    }
    if (next_is("{")) {
      const std::size_t close = source_.find('}', at_);
      if (close != std::string_view::npos && source_.substr(close + 1).starts_with("+"))
        refuse("'+' after '{n}', which repeats in Ruby and is possessive in PCRE2,");
    }
    if (next_is("[^")) {
      in_class_ = true;
      copy(2);
    } else if (next_is("[")) {
      in_class_ = true;
      copy(1);
    } else {
      copy(1);
    }
  }

  void class_member() {
    if (next_is("&&")) refuse("'&&' in a class");
    if (next_is("[:")) {
      copy_through(":]");
    } else if (next_is("[^") || next_is("[]") || next_is("-[") || (nested_ > 0 && next_is("]-"))) {
      refuse("a class in a class that is more than a union of both");
    } else if (next_is("[")) {  // its members make the union as well
      ++nested_;
      ++at_;
    } else if (next_is("]") && nested_ > 0) {
      --nested_;
      ++at_;
    } else {
      if (next_is("]")) in_class_ = false;
      copy(1);
    }
  }

  void escape() {
    if (at_ + 1 == source_.size()) refuse("a backslash at the end");
    const char letter = source_[at_ + 1];
    if (!std::isalnum(byte(at_ + 1))) return copy(2);
    if (std::string_view("dDnrtfae").find(letter) != std::string_view::npos) return copy(2);
    if (std::string_view("pPx").find(letter) != std::string_view::npos) {
      return source_.substr(at_ + 2).starts_with("{") ? copy_through("}") : copy(2);
    }
    if (letter == 's') {
      out_ += kSpace;
    } else if (letter == 'S') {
      out_ += R"(\P{White_Space})";
    } else if (letter == 'w') {
      out_ += in_class_ ? std::string(kWord) : word("[");
    } else if (letter == 'W' && !in_class_) {
      out_ += word("[^");
    } else if (letter == 'b' && !in_class_) {
      const std::string w = word("[");
      out_ += "(?:(?<=" + w + ")(?!" + w + ")|(?<!" + w + ")(?=" + w + "))";
    } else if (letter == 'u' && at_ + 6 <= source_.size()) {
      out_ += R"(\x{)" + std::string(source_.substr(at_ + 2, 4)) + "}";
      at_ += 4;
    } else {
      refuse("the escape \\" + std::string(1, letter));
    }
    at_ += 2;
  }

  static std::string word(std::string_view open) {
    return std::string(open) + std::string(kWord) + "]";
  }
  unsigned char byte(std::size_t i) const { return static_cast<unsigned char>(source_[i]); }

  std::string_view source_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  int nested_ = 0;  // classes that are open in that class
  std::string out_;
};

}  // namespace

void Pattern::Free::operator()(pcre2_real_code_8* code) const noexcept { pcre2_code_free(code); }

Pattern::Pattern(std::string_view pcre, std::string_view source, unsigned options)
    : source_(source) {
  int problem = 0;
  std::size_t where = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(),
                            options | PCRE2_UTF, &problem, &where, nullptr));
  if (!code_) throw Error("pattern '" + source_ + "': " + pcre2_message(problem));
  // Without JIT (a hardened kernel may forbid it) the same pattern runs interpreted.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

Pattern Pattern::regex(std::string_view source) {
  // Multi-line always: '^' and '$' are about lines in Ruby.
  return Pattern(Translator(source).run(), source, PCRE2_UCP | PCRE2_MULTILINE);
}

Pattern Pattern::literal(std::string_view text) {
  if (text.empty()) throw Error("a pattern is empty: it would match everywhere");
  return Pattern(text, text, PCRE2_LITERAL);
}

template <class Found>
void Pattern::for_each_match(std::string_view text, const Found& found_match) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create(1, nullptr));
  if (!data) throw std::bad_alloc();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t from = 0, covered = std::numeric_limits<std::size_t>::max();
  while (from <= text.size()) {
    // The text was checked once; PCRE2 would check all of it again for each match.
    int found = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(),
                            nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
      found = pcre2_match(code_.get(), subject, text.size(), from,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), nullptr);
    }
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) throw Error("pattern '" + source_ + "': " + pcre2_message(found));
    const std::size_t* ends = pcre2_get_ovector_pointer(data.get());
    const Span match{ends[0], ends[1]};
    if (match.begin == match.end) {
      if (match.begin != covered) found_match(match);
      if (match.end == text.size()) return;
      from = match.end + utf8_length(text[match.end]);
    } else {
      found_match(match);
      from = covered = match.end;
    }
  }
}

void Pattern::find_all(std::string_view text, std::vector<Span>& matches,
                       const Bounds& bounds) const {
  matches.clear();
  for_each_match(text, [&](const Span& match) {
    bounds.check(0);
    matches.push_back(match);
  });
}

std::string Pattern::replace_all(std::string_view text, std::string_view with,
                                 const Bounds& bounds) const {
  std::string out;
  out.reserve(text.size());
  std::size_t from = 0;
  for_each_match(text, [&](const Span& match) {
    out += text.substr(from, match.begin - from);
    out += with;
    from = match.end;
    bounds.check(out.size());
  });
  out += text.substr(from);
  bounds.check(out.size());
  return out;
}

}  // namespace canopy::text
