#include "src/measure/timed_prompts.h"

#include "src/base/error.h"

namespace canopy {

TimedPrompts::TimedPrompts(const Tokenizer& tokenizer, std::span<const std::string> texts)
    : tokenizer_(tokenizer) {
  for (const std::string& text : texts) {
    const std::vector<TokenId> ids = tokenizer.encode(text, AddSpecial::kNo);
    if (ids.empty()) continue;
    starts_.push_back(tokens_.size());
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  }
  if (tokens_.empty()) throw Error("the tokenizer makes no token of any text");
}

std::vector<TokenId> TimedPrompts::next(int tokens) {
  std::size_t at = starts_[made_ % starts_.size()];
  // The point ends the number: no number's tokens are the first of another's.
  std::vector<TokenId> prompt = tokenizer_.encode(std::to_string(++made_) + ". ", AddSpecial::kNo);
  prompt.reserve(static_cast<std::size_t>(tokens));
  for (; std::ssize(prompt) < tokens; ++at) prompt.push_back(tokens_[at % tokens_.size()]);
  prompt.resize(static_cast<std::size_t>(tokens));
  return prompt;
}

}  // namespace canopy
