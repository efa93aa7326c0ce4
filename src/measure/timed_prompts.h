#pragma once
#include <span>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"

namespace canopy {

/// Prompts for runs that are timed. Each begins as none before did: the keys and values of a
/// beginning that an engine remembers are not computed again, and the run would seem faster.
class TimedPrompts {
 public:
  /// The tokenizer must outlive the prompts. Throws Error if no text has a token.
  TimedPrompts(const Tokenizer& tokenizer, std::span<const std::string> texts);

  /// Its number, then the next of the texts, running on into those after it.
  std::vector<TokenId> next(int tokens);

 private:
  const Tokenizer& tokenizer_;
  std::vector<TokenId> tokens_;      // of all texts
  std::vector<std::size_t> starts_;  // in them, of each text
  std::size_t made_ = 0;
};

}  // namespace canopy
