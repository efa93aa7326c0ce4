#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/bounds.h"

struct pcre2_real_code_8;

namespace canopy::text {

struct Span {
  std::size_t begin = 0, end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

/// A regular expression over UTF-8, compiled with PCRE2. Immutable: any number of threads.
class Pattern {
 public:
  /// `source` is in the dialect of tokenizer.json (Oniguruma's Ruby syntax with Unicode classes),
  /// translated where PCRE2 reads it differently. Throws Error for what has no translation.
  static Pattern regex(std::string_view source);
  /// Matches exactly `text`, which must not be empty.
  static Pattern literal(std::string_view text);

  /// Appends the matches in `text` (valid UTF-8) from left to right, none overlapping, and clears
  /// `matches` first. Throws Error naming the pattern if that takes too many steps, or too much
  /// memory; Stopped.
  void find_all(std::string_view text, std::vector<Span>& matches, const Bounds& bounds) const;
  /// Throws like find_all, and as `bounds` has it if the result is too long.
  std::string replace_all(std::string_view text, std::string_view with, const Bounds& bounds) const;

 private:
  /// Calls found(match) for each, from left to right.
  template <class Found>
  void for_each_match(std::string_view text, const Found& found) const;
  struct Free {
    void operator()(pcre2_real_code_8* code) const noexcept;
  };
  Pattern(std::string_view pcre, std::string_view source, unsigned options);
  std::string source_;  // in quotes, for messages
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace canopy::text
