#pragma once
#include <span>
#include <string>
#include <vector>

#include "src/text/tokenizer.h"

namespace canopy {

/// Texts to measure acceptance on where the user names none: encyclopaedia, stories, dialogue,
/// chat, instructions, lists, letters, code and five languages besides English, about 130 words
/// each. Written for this project, under its licence.
std::vector<std::string> default_prompts();

/// A prompt, and which text it was cut from.
struct PromptCut {
  int text = 0;
  std::vector<TokenId> tokens;
};

/// Cuts `count` different prompts of `tokens` tokens, from all texts in turn: each is cut as often
/// as needed, at offsets spread evenly over it, after the tokens that the model's template puts
/// before any text. A shorter text is taken whole, once. Fewer than `count` where the texts have no
/// more. Texts without any token are left out.
std::vector<PromptCut> cut_prompts(const Tokenizer& tokenizer, std::span<const std::string> texts,
                                   int count, int tokens);

}  // namespace canopy
