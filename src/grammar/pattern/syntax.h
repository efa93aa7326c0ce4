#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/grammar/pattern/code_points.h"

namespace canopy::grammar {

/// A piece of a regular expression.
struct Piece {
  enum class Kind : std::uint8_t {
    kCharacter,  // one of `set`
    kSequence,   // `inner`, one after the other
    kChoice,     // one of `inner`
    kRepeated,   // inner[0], `fewest` to `most` times
    kBegin,      // ^
    kEnd,        // $
    kAhead,      // inner[0] must follow
    kNotAhead,   // inner[0] must not follow
  };
  Kind kind = Kind::kSequence;
  std::size_t set = 0;
  std::vector<std::size_t> inner = {};
  std::uint32_t fewest = 0, most = 0;
  std::size_t place = 0;  // the number of its first character in the text, from 1
};

/// Regular expressions of ECMA-262, read: pieces that point to each other and to sets of
/// characters.
struct Syntax {
  std::vector<Piece> pieces;
  std::vector<CodePoints> sets;  // each once

  /// Adds an expression; the piece that is all of it. Groups capture nothing, and lazy quantifiers
  /// are as others.
  /// Throws Error naming what is malformed or not regular (a reference back), or has no meaning of
  /// its own here (\b, lookbehind, \p, flags), and its place.
  std::size_t add(std::string_view text);
};

}  // namespace canopy::grammar
