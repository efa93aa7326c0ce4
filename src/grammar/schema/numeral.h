#pragma once
#include "src/grammar/automaton.h"
#include "src/grammar/schema/decimal.h"

namespace canopy::grammar {

enum class Numbers : bool { kWhole, kAll };

/// Adds the JSON numbers in the range, with at most kMostDigits digits before the point and after
/// it; whole ones have no point. An exponent of at most two digits is allowed where the range is
/// open on both sides. Returns the state that begins the rule; kDead if there is no such number.
StateId add_numerals(Automaton& automaton, Numbers numbers, const Range& range);

}  // namespace canopy::grammar
