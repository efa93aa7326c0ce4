#include "src/chat/chat_prompt.h"

#include <utility>

#include "src/base/error.h"
#include "src/base/utf8.h"

namespace canopy::chat {

namespace {

using nlohmann::ordered_json;

bool holds(const ordered_json& value, std::string_view text) {
  if (value.is_string()) return value.get_ref<const std::string&>().find(text) != std::string::npos;
  if (!value.is_structured()) return false;
  for (const auto& [key, member] : value.items())
    if (key.find(text) != std::string::npos || holds(member, text)) return true;
  return false;
}

/// A noncharacter of Unicode that stands nowhere in these values, and is another than `taken`.
std::string find_mark(std::span<const ordered_json* const> values, std::string_view taken = {}) {
  for (char32_t character = 0xFDD0; character <= 0xFDEF; ++character) {
    std::string mark;
    append_utf8(mark, character);
    bool used = mark == taken;
    for (const ordered_json* value : values) used = used || holds(*value, mark);
    if (!used) return mark;
  }
  throw Error("the messages use every noncharacter from U+FDD0 to U+FDEF: leave one of them out");
}

/// Every string in it, with the mark in its special tokens.
void quote(ordered_json& value, const Tokenizer& tokenizer, std::string_view mark) {
  if (value.is_string()) {
    value = tokenizer.quote_specials(value.get_ref<const std::string&>(), mark);
  } else if (value.is_object()) {
    ordered_json quoted = ordered_json::object();
    for (auto& [key, member] : value.items()) {
      quote(member, tokenizer, mark);
      quoted[tokenizer.quote_specials(key, mark)] = std::move(member);
    }
    value = std::move(quoted);
  } else if (value.is_array()) {
    for (ordered_json& entry : value) quote(entry, tokenizer, mark);
  }
}

std::string without(std::string text, std::string_view mark) {
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos;)
    text.erase(at, mark.size());
  return text;
}

constexpr std::string_view kSpace = " \t\r\n";

/// Cuts a rendered text off where its last message, `content`, ends. That is where `end` stands,
/// which was put there with a blank after it: where the blank is gone, the template has taken the
/// space at the end of messages away, and would have taken the message's own.
void cut_after(const std::string& content, std::string_view end, std::string& text) {
  const std::size_t at = text.rfind(end);
  if (at == text.npos)
    throw Error("the last message cannot be continued: the template leaves it out");
  const bool keeps_space = text.compare(at + end.size(), 1, " ") == 0;
  text.resize(at);
  const std::size_t last = content.find_last_not_of(kSpace);
  if (!keeps_space && last != content.npos) text.resize(at - (content.size() - last - 1));
}

}  // namespace

Prompt render_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                     Conversation conversation, const std::tm& now) {
  const ordered_json* const written[] = {&conversation.messages, &conversation.tools,
                                         &conversation.documents, &conversation.variables};
  Prompt prompt;
  prompt.mark = find_mark(written);
  quote(conversation.messages, tokenizer, prompt.mark);
  quote(conversation.tools, tokenizer, prompt.mark);
  quote(conversation.documents, tokenizer, prompt.mark);
  quote(conversation.variables, tokenizer, prompt.mark);
  if (conversation.continue_final_message) {
    auto& content = conversation.messages.back()["content"].get_ref<std::string&>();
    const std::string said = content, end = find_mark(written, prompt.mark);
    content += end + " ";
    prompt.marked = chat_template.render(conversation, now);
    cut_after(said, end, prompt.marked);
  } else {
    prompt.marked = chat_template.render(conversation, now);
  }
  prompt.text = without(prompt.marked, prompt.mark);
  return prompt;
}

AnswerMemory::Beginning AnswerMemory::find(const Prompt& prompt) {
  auto best = texts_.end();
  for (auto text = texts_.begin(); text != texts_.end(); ++text)
    if (prompt.marked.starts_with(text->marked) &&
        (best == texts_.end() || text->marked.size() > best->marked.size()))
      best = text;
  if (best == texts_.end()) return {};
  texts_.splice(texts_.begin(), texts_, best);
  return {best->marked.size(), best->tokens};
}

std::vector<TokenId> encode(const Prompt& prompt, AnswerMemory::Beginning beginning,
                            const Tokenizer& tokenizer, const std::stop_token& stop) {
  std::vector<TokenId> tokens = std::move(beginning.tokens);
  const std::vector<TokenId> rest = tokenizer.encode_marked(
      std::string_view(prompt.marked).substr(beginning.bytes), prompt.mark, stop);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

void AnswerMemory::remember(const Prompt& prompt, std::span<const TokenId> prompt_tokens,
                            std::span<const TokenId> answer, const Tokenizer& tokenizer) {
  if (!answer.empty() && tokenizer.ends_text(answer.back()))
    answer = answer.first(answer.size() - 1);
  Text text{prompt.marked, {prompt_tokens.begin(), prompt_tokens.end()}};
  for (const TokenId token : answer) {
    if (tokenizer.is_special(token)) return;  // no message gives it back
    text.marked += tokenizer.piece(token);
    text.tokens.push_back(token);
  }
  if (!is_utf8(text.marked)) return;  // no message gives it back, either
  bytes_ += text.marked.size();
  texts_.push_front(std::move(text));
  while (bytes_ > most_bytes_) {
    bytes_ -= texts_.back().marked.size();
    texts_.pop_back();
  }
}

}  // namespace canopy::chat
