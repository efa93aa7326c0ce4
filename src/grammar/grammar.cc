#include "src/grammar/grammar.h"

#include <utility>
#include <vector>

#include "src/base/error.h"

namespace canopy::grammar {

Grammar::Grammar(Automaton automaton, StateId start)
    : automaton_(std::move(automaton)), start_(start) {
  if (heights(automaton_, ByteSet().set())[start_] == kNever)
    throw Error("no text satisfies the grammar");
}

Grammar literal(std::string_view text) {
  require(!text.empty(), "a literal of a grammar is empty: leave it out");
  Automaton automaton;
  const StateId start = automaton.spell(text, Automaton::kReturn);
  return {std::move(automaton), start};
}

Grammar sequence(std::span<const Grammar> parts) {
  require(!parts.empty(), "a sequence of a grammar has no parts");
  Automaton automaton;
  StateId start = Automaton::kReturn;
  for (std::size_t i = parts.size(); i-- > 0;) {
    const StateId offset = automaton.append(parts[i].automaton());
    start = automaton.call(offset + parts[i].start(), start);
  }
  return {std::move(automaton), start};
}

Grammar alternatives(std::span<const Grammar> choices) {
  Automaton automaton;
  std::vector<StateId> starts;
  for (const Grammar& choice : choices)
    starts.push_back(automaton.append(choice.automaton()) + choice.start());
  const StateId start = automaton.fork(starts);
  return {std::move(automaton), start};
}

}  // namespace canopy::grammar
