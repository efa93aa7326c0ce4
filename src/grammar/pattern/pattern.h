#pragma once
#include <optional>
#include <span>
#include <string>

#include "src/grammar/pattern/expressions.h"
#include "src/grammar/schema/formats.h"

namespace canopy::grammar {

/// A schema's rules for strings, regular expressions among them.
struct StringRules {
  std::vector<std::string> patterns;  // of ECMA-262
  std::vector<std::string> formats;   // that add_format() knows
  Lengths lengths;
  auto operator<=>(const StringRules&) const = default;
};

/// Adds a rule for the JSON strings that satisfy all of this. Their characters are escaped where
/// JSON asks for it, and then in one way. `any`: add_text(Text::kFree), which goes on where every
/// text does. kDead: there is no such string. Throws Error naming what a pattern has that is not
/// supported, and its place; or that it takes more than kMostPatternStates.
StateId add_strings(Automaton& automaton, const StringRules& rules, StateId any, PatternWork& work);

}  // namespace canopy::grammar
