// Bodies of requests to the API: completions, chats, and the tools that they offer.
#include "src/server/replies/api_error.h"
#include "src/server/replies/replies.h"
#include "src/server/request/completion_request.h"
#include "tests/fuzz/fuzz.h"

namespace canopy::fuzz {
namespace {

template <class Body>
void answers(Body&& body) {
  try {
    reads(body);
  } catch (const server::ApiError& error) {
    expect(error.status >= 400 && error.status < 500, "an error of the client's");
    error.anthropic_body().dump();
    error.body().dump();  // where names stand as the client wrote them
  }
}

}  // namespace

void fuzz_one(std::string_view input) {
  static const server::Defaults kDefaults{
      .sampling = {}, .edits = {}, .vocab = 300, .most_choices = 8};
  http::Request request;
  request.body = input;
  nlohmann::ordered_json body;
  answers([&] { body = server::parse_body(request); });
  if (!body.is_object()) return;
  answers([&] {
    const server::CompletionRequest chat = server::read_chat_request(body, kDefaults);
    expect(chat.conversation.messages.is_array() && chat.choices >= 1 && chat.choices <= 8,
           "a chat");
    for (const server::Tool& tool : chat.tools) expect(!tool.name.empty(), "tools with names");
    if (!chat.tools.empty())
      for (const auto form : {server::ToolForm::kHermes, server::ToolForm::kLlama})
        server::call_grammar(form, chat.tools);
  });
  for (const auto ask : {server::AnthropicAsk::kText, server::AnthropicAsk::kCount})
    answers([&] {
      const server::CompletionRequest chat = server::read_anthropic_request(body, kDefaults, ask);
      for (const auto& message : chat.conversation.messages)
        expect(message.contains("role") && message.contains("content"), "messages of a chat");
    });
  answers([&] {
    static const server::StoredResponses kNone;
    const server::CompletionRequest chat = server::read_responses_request(body, kDefaults, kNone);
    for (const auto& message : chat.conversation.messages)
      expect(message.contains("role") && message.contains("content"), "messages of a chat");
    expect(chat.response && chat.response->items.is_array(), "items");
  });
  answers([&] {
    const server::CompletionRequest text = server::read_text_request(body, kDefaults);
    expect(!text.prompts.empty(), "prompts");
  });
}

}  // namespace canopy::fuzz
