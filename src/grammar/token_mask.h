#pragma once
#include <memory>

#include "src/grammar/grammar.h"
#include "src/grammar/vocabulary_trie.h"
#include "src/text/token_constraint.h"

namespace canopy::grammar {

/// Allows the tokens that keep a text one that can still become the grammar's, so that there is
/// always a way on; end tokens where it is complete, and nothing but them after one. Its masks are
/// kept, and shared by all its clones, which any threads may use at the same time.
/// Throws Error if the vocabulary has not the bytes that the grammar needs, each as a token.
/// accept() and allow() throw Error if nothing may follow after all, or `allowed` has not a bit for
/// every token.
std::unique_ptr<TokenConstraint> constrain(std::shared_ptr<const Grammar> grammar,
                                           std::shared_ptr<const VocabularyTrie> vocabulary);

}  // namespace canopy::grammar
