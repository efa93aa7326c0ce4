#pragma once
#include <span>
#include <vector>

#include "src/grammar/automaton.h"
#include "src/grammar/pattern/code_points.h"

namespace canopy::grammar {

struct TextStep {
  CodeRange range;
  std::size_t to = 0;  // an index of a TextState
};

/// A place in texts, by what may follow it.
struct TextState {
  std::vector<TextStep> steps;  // in the order of their characters, none of them in two
  bool ends = false;            // the text may end here
  bool everything = false;      // all texts follow
};

/// Adds the inside of JSON strings whose texts the states read from the first of them on, up to the
/// closing quote, which ends the rule. A quote, a backslash and control characters are escaped, in
/// the shortest way; other characters are UTF-8. `any` goes on where everything follows.
StateId add_spelled(Automaton& automaton, std::span<const TextState> states, StateId any);

}  // namespace canopy::grammar
