#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/text/pipeline/pattern.h"

namespace canopy::text {

/// Canonical composition (Unicode normalization form C).
struct Nfc {};
/// Puts `text` before anything that is not empty.
struct Prepend {
  std::string text;
};
struct Replace {
  Pattern pattern;
  std::string with;
};

/// The steps of tokenizer.json's "normalizer", in order. Input and output are valid UTF-8.
using Normalizer = std::vector<std::variant<Nfc, Prepend, Replace>>;
std::string normalize(const Normalizer& normalizer, std::string_view text, const Bounds& bounds);

/// O(n log n), also for text that is one long run of combining marks.
std::string to_nfc(std::string_view text);

}  // namespace canopy::text
