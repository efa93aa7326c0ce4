#pragma once
#include "src/grammar/automaton.h"

namespace canopy::grammar {

/// The inside of a JSON string up to its closing quote, which ends the rule: UTF-8 but for control
/// characters, each character counted by its first byte. kFree has all escapes too, surrogates in
/// pairs only, each pair one character; kKey has none. The state between two characters.
StateId add_text(Automaton& automaton, Text text);

}  // namespace canopy::grammar
