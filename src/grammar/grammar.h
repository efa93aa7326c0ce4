#pragma once
// Room src/grammar: masks of the tokens that may come next, from a JSON schema, a grammar or a
// pattern.
// In: a schema and the vocabulary of src/text. Out: a TokenConstraint.
// Must not know: logits, devices, requests over HTTP.
#include <span>
#include <string_view>

#include "src/grammar/automaton.h"

namespace canopy::grammar {

/// A set of texts, as an automaton that reads them byte by byte. Immutable: any number of threads.
class Grammar {
 public:
  /// `start` begins a rule of the automaton. Throws Error if no text can be read by it.
  Grammar(Automaton automaton, StateId start);

  const Automaton& automaton() const { return automaton_; }
  StateId start() const { return start_; }

 private:
  Automaton automaton_;
  StateId start_;
};

/// This text alone, which is not empty.
Grammar literal(std::string_view text);
/// One text of each part, in this order, with nothing between them.
Grammar sequence(std::span<const Grammar> parts);
/// A text of any of these.
Grammar alternatives(std::span<const Grammar> choices);

}  // namespace canopy::grammar
