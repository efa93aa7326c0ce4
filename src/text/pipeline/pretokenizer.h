#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "src/text/pipeline/pattern.h"

namespace canopy::text {

/// A text and the pieces it is cut into, in order; the model never merges across pieces.
struct Pieces {
  std::string text;
  std::vector<Span> spans;   // none empty
  bool begins_input = true;  // the first byte of text is the first of what the user wrote
};

/// Cuts each piece at the matches of a pattern.
struct Split {
  enum class Behavior : std::uint8_t {
    kRemoved,
    kIsolated,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous
  };
  Pattern pattern;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;  // set if the parts between the matches take the matches' place
};
/// Puts a space before each piece that has none.
struct PrefixSpace {};
/// Writes each byte as its visible character (src/text/pipeline/byte_level.h).
struct ByteLevel {};
/// Writes spaces as a visible character.
struct Metaspace {
  enum class Scheme : std::uint8_t { kNever, kFirst, kAlways };
  std::string replacement;  // one character, usually U+2581
  Scheme prepend = Scheme::kAlways;
  bool split = true;  // cut before each replacement character
};

/// The steps of tokenizer.json's "pre_tokenizer", in order.
using PreTokenizer = std::vector<std::variant<Split, PrefixSpace, ByteLevel, Metaspace>>;
void pre_tokenize(const PreTokenizer& steps, Pieces& pieces, const Bounds& bounds);

/// Returns the cuts that GPT-2 makes between words: "use_regex" of "ByteLevel".
Split gpt2_split();
/// Numerals of any script, each alone (kIsolated) or a run as one piece (kContiguous).
Split digit_split(Split::Behavior behavior);

}  // namespace canopy::text
