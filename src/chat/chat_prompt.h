#pragma once
#include <cstddef>
#include <ctime>
#include <list>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/text/tokenizer.h"

namespace canopy::chat {

/// The text that a template makes of a conversation, for a model to go on from.
struct Prompt {
  std::string text;  // as the template wrote it
  /// The same with `mark` in each special token that stands in a message: Tokenizer::encode_marked.
  std::string marked;
  std::string mark;
};

/// Renders a conversation. What its messages say is text, whatever stands in it: no special token
/// comes from there, only from the template. A last message that is to be continued must have a
/// string as its content; all that the template writes after it is left out. Throws what
/// ChatTemplate::render() throws, and Error where the template does not write that message.
Prompt render_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                     Conversation conversation, const std::tm& now);

/// Remembers the tokens of texts that a model has written to the end, so that a conversation goes
/// on from the tokens that the model saw: these need not be the ones that encoding the text gives.
/// One thread at a time.
class AnswerMemory {
 public:
  /// Forgets the texts used least recently beyond `most_bytes` bytes of text.
  explicit AnswerMemory(std::size_t most_bytes = 16u << 20) : most_bytes_(most_bytes) {}

  /// The longest remembered text that a prompt begins with.
  struct Beginning {
    std::size_t bytes = 0;  // of Prompt::marked
    std::vector<TokenId> tokens;
  };
  Beginning find(const Prompt& prompt);
  /// `prompt` of these tokens was followed by this answer.
  void remember(const Prompt& prompt, std::span<const TokenId> prompt_tokens,
                std::span<const TokenId> answer, const Tokenizer& tokenizer);

 private:
  struct Text {
    std::string marked;
    std::vector<TokenId> tokens;
  };
  std::size_t most_bytes_, bytes_ = 0;
  std::list<Text> texts_;  // the one used last is the first
};

/// The tokens of a prompt that begins so.
std::vector<TokenId> encode(const Prompt& prompt, AnswerMemory::Beginning beginning,
                            const Tokenizer& tokenizer, const std::stop_token& stop = {});

}  // namespace canopy::chat
