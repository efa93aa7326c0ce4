// A regular expression of a tokenizer, and a text: the bytes after the first zero byte.
#include "src/text/pipeline/pattern.h"

#include "src/base/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {

void fuzz_one(std::string_view input) {
  const auto [source, behind] = split(input);
  if (!is_utf8(source)) return;  // it comes from JSON
  const std::string text = to_utf8(behind);
  reads([&, &source = source] {
    const text::Pattern pattern = text::Pattern::regex(source);
    std::vector<text::Span> found;
    pattern.find_all(text, found, text::Bounds(text.size()));
    std::size_t end = 0;
    for (const text::Span& span : found) {
      expect(span.begin >= end && span.end >= span.begin && span.end <= text.size(),
             "matches from left to right, inside of the text");
      expect(is_utf8(text.substr(span.begin, span.end - span.begin)),
             "matches of whole characters");
      end = span.end;
    }
    expect(is_utf8(pattern.replace_all(text, "\u2581", text::Bounds(text.size()))),
           "a text in UTF-8");
  });
}

}  // namespace canopy::fuzz
