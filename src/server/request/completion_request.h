#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/chat/chat_template.h"
#include "src/engine/session.h"
#include "src/server/stored_responses.h"
#include "src/server/tools.h"

namespace canopy::server {

/// Values that a request takes where it gives none, and limits of its own.
struct Defaults {
  Sampling sampling;
  LogitEditing edits;
  int vocab = 0;
  int most_choices = 1;  // texts of one request
};

/// Treatments of the reasoning that a model writes before its answer, in a chat.
enum class ReasoningFormat : std::uint8_t {
  kSeparate,  // a member of its own
  kInText,    // a part of the text, with its tags
  kLeftOut
};

/// Parts of a request by OpenAI's Responses API that its reply needs.
struct ResponseTerms {
  nlohmann::ordered_json repeated;  // members of the reply, as they are in the request
  nlohmann::ordered_json items;     // of the whole conversation so far: a list
  bool stored = true;               // for later requests
  bool seals_reasoning = false;     // has it as `encrypted_content`, too
};

/// The body of a request for texts, checked.
struct CompletionRequest {
  /// Beginnings that completions continue: each is text or tokens. Empty for a chat.
  std::vector<std::variant<std::string, std::vector<TokenId>>> prompts;
  chat::Conversation conversation;  // of a chat
  ReasoningFormat reasoning = ReasoningFormat::kSeparate;
  std::optional<nlohmann::ordered_json> schema;   // that the text must satisfy
  const char* schema_member = "response_format";  // the member that it came in
  std::vector<Tool> tools;                        // that may be called; none where none may
  bool must_call = false;                         // one of them
  bool one_call = false;                          // at most: what follows it is left out
  std::optional<ResponseTerms> response;          // of that API alone

  Sampling sampling;
  LogitEditing edits;
  std::optional<std::uint64_t> seed;
  std::optional<int> most_tokens;  // nothing: until the context is full; 0: the echo alone
  bool ignore_end = false;
  int choices = 1;  // for each prompt
  std::vector<std::string> stops;
  std::vector<TokenId> stop_tokens;  // end the text, too
  int least_tokens = 0;              // before anything ends it but its length
  std::optional<int> logprobs;       // alternatives to report for each token

  bool echo = false;  // the prompt stands before the text
  bool stream = false, include_usage = false, return_progress = false, timings_per_token = false;
  bool usage_in_chunks = false;  // in each
  bool return_tokens = false;
  bool resume = false;  // a client that lost the stream may come back to it
  std::optional<std::string> model;
  std::vector<std::string> warnings;  // of what was asked for and is not done

  bool scores_prompts() const { return echo && logprobs; }
};

inline constexpr int kMostTokens = 10'000'000;  // that a request can ask for

/// Questions that a request by Anthropic's API may ask: for a text, or for its prompt's tokens.
enum class AnthropicAsk : std::uint8_t { kText, kCount };

/// Throws ApiError 400 naming the member: not what the API has, or not supported.
CompletionRequest read_chat_request(const nlohmann::ordered_json& body, const Defaults& defaults);
CompletionRequest read_text_request(const nlohmann::ordered_json& body, const Defaults& defaults);
/// Reads llama-server's /completion.
CompletionRequest read_llama_request(const nlohmann::ordered_json& body, const Defaults& defaults);
/// Reads Anthropic's /v1/messages.
CompletionRequest read_anthropic_request(const nlohmann::ordered_json& body,
                                         const Defaults& defaults, AnthropicAsk ask);
/// Reads OpenAI's /v1/responses; `stored`: what it may go on from.
CompletionRequest read_responses_request(const nlohmann::ordered_json& body,
                                         const Defaults& defaults, const StoredResponses& stored);

}  // namespace canopy::server
