#include "src/text/pipeline/pattern.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <optional>

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

/// The longest pattern of published tokenizers has 500 bytes.
constexpr std::size_t kMostPatternBytes = 16 << 10;
/// Steps (as PCRE2 counts them) that a match may take unnoticed. Words take some twenty.
constexpr std::uint32_t kEasySteps = 256;
/// Steps that the harder matches of a text may take, all together: about ten seconds at worst. A
/// look ahead over a run of 9000 digits from each third of them takes as many.
constexpr std::uint64_t kMostSteps = 10'000'000, kMostStepsPerByte = 64;
/// The memory of one match: a repeated group takes some 30 bytes of it for each turn.
constexpr std::size_t kMostStackBytes = 128u << 20, kFirstStackBytes = 64u << 10;

struct FreeMatch {
  void operator()(pcre2_match_data* data) const noexcept { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const noexcept {
    pcre2_match_context_free(context);
  }
  void operator()(pcre2_jit_stack* stack) const noexcept { pcre2_jit_stack_free(stack); }
};

template <class T>
std::unique_ptr<T, FreeMatch> owned(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return std::unique_ptr<T, FreeMatch>(made);
}

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
    throw Error("pattern " + in_quotes(source_) + ": " + std::string(what) + " is not supported");
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

/// Finds the matches of a pattern in one text, in a bounded number of steps for all of them.
class Matcher {
 public:
  /// `source`: the pattern's, in quotes.
  Matcher(const pcre2_code* code, std::string_view source, std::string_view text)
      : code_(code),
        source_(source),
        text_(text),
        data_(owned(pcre2_match_data_create(1, nullptr))),
        context_(owned(pcre2_match_context_create(nullptr))),
        left_(kMostSteps + kMostStepsPerByte * text.size()) {
    // Limits the memory of the interpreter, which runs where there is no JIT; in KiB.
    pcre2_set_heap_limit(context_.get(), kMostStackBytes >> 10);
  }

  /// The first match from byte `from` on; nothing if there is none. Throws Error.
  std::optional<Span> find(std::size_t from) {
    std::uint32_t limit = kEasySteps;
    while (true) {
      pcre2_set_match_limit(context_.get(), limit);
      // The text was checked once; PCRE2 would check all of it again for each match.
      const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(),
                                    from, PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
      if (found == PCRE2_ERROR_JIT_STACKLIMIT && !stack_) {
        grow_stack();
      } else if (found == PCRE2_ERROR_MATCHLIMIT) {
        take(limit);
        limit = std::min(limit * kHarder, kMostAtOnce);
      } else {
        if (limit > kEasySteps) take(limit / kHarder);  // at least these
        if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
        if (found < 0) fail(pcre2_message(found));
        const std::size_t* const ends = pcre2_get_ovector_pointer(data_.get());
        return Span{ends[0], ends[1]};
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error("pattern " + std::string(source_) + ": " + why);
  }
  static constexpr std::uint32_t kHarder = 4, kMostAtOnce = 1u << 28;

  void take(std::uint32_t steps) {
    if (steps > left_)
      fail("it takes too many steps on a text of " + std::to_string(text_.size()) +
           " bytes, going back over what it has matched again and again");
    left_ -= steps;
  }
  /// Without one, PCRE2 has 32 KiB of the thread's own stack.
  void grow_stack() {
    stack_ = owned(pcre2_jit_stack_create(kFirstStackBytes, kMostStackBytes, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  const pcre2_code* code_;
  std::string_view source_, text_;
  std::unique_ptr<pcre2_match_data, FreeMatch> data_;
  std::unique_ptr<pcre2_match_context, FreeMatch> context_;
  std::unique_ptr<pcre2_jit_stack, FreeMatch> stack_;
  std::uint64_t left_;
};

}  // namespace

void Pattern::Free::operator()(pcre2_real_code_8* code) const noexcept { pcre2_code_free(code); }

Pattern::Pattern(std::string_view pcre, std::string_view source, unsigned options)
    : source_(in_quotes(source)) {
  if (source.size() > kMostPatternBytes)
    throw Error("pattern " + source_ + " has " + std::to_string(source.size()) +
                " bytes, more than " + std::to_string(kMostPatternBytes));
  int problem = 0;
  std::size_t where = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(),
                            options | PCRE2_UTF, &problem, &where, nullptr));
  if (!code_) throw Error("pattern " + source_ + ": " + pcre2_message(problem));
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
  Matcher matcher(code_.get(), source_, text);
  std::size_t from = 0, covered = std::numeric_limits<std::size_t>::max();
  while (from <= text.size()) {
    const std::optional<Span> found = matcher.find(from);
    if (!found) return;
    const Span match = *found;
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
