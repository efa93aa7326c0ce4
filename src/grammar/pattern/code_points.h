#pragma once
#include <vector>

namespace canopy::grammar {

/// A range of code points, both included.
struct CodeRange {
  char32_t first = 0, last = 0;
  bool operator==(const CodeRange&) const = default;
};

inline constexpr char32_t kLastCodePoint = 0x10FFFF;

/// A set of characters: code points but the surrogates, as ranges in their order that do not touch.
class CodePoints {
 public:
  CodePoints() = default;
  explicit CodePoints(std::vector<CodeRange> ranges);

  void add(char32_t first, char32_t last);
  void add(const CodePoints& other);
  CodePoints others() const;
  const std::vector<CodeRange>& ranges() const { return ranges_; }
  bool operator==(const CodePoints&) const = default;

 private:
  void order();

  std::vector<CodeRange> ranges_;
};

/// Return the sets of ECMA-262: `\d`, `\w`, `\s`, and what ends a line, which `.` leaves out.
CodePoints digits();
CodePoints word_characters();
CodePoints white_space();
CodePoints line_ends();

}  // namespace canopy::grammar
