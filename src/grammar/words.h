#pragma once
#include <span>
#include <string>

#include "src/grammar/automaton.h"

namespace canopy::grammar {

/// One of these texts, none of them empty, then `to`.
StateId add_words(Automaton& automaton, std::span<const std::string> words, StateId to);

/// Adds a rule for any string but these, from after its opening quote to its closing one, which
/// ends the rule; `text`: the state that add_text() made with Text::kKey.
StateId add_other_keys(Automaton& automaton, std::span<const std::string> keys, StateId text);

}  // namespace canopy::grammar
