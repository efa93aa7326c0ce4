#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/server/http/server.h"
#include "src/server/job.h"
#include "src/server/tools.h"

namespace canopy::server {

/// Interface whose replies an answer has.
enum class Api : std::uint8_t {
  kChat,       // OpenAI's /v1/chat/completions
  kText,       // OpenAI's /v1/completions
  kLlama,      // llama-server's /completion
  kAnthropic,  // Anthropic's /v1/messages
  kResponses   // OpenAI's /v1/responses
};

/// Members that all parts of one answer have in common.
struct ReplyHead {
  Api api = Api::kText;
  std::string id, model;
  std::int64_t created = 0;  // Unix time
};

/// Tokens that an answer took.
struct Usage {
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

/// A request's body. Throws ApiError 400.
nlohmann::ordered_json parse_body(const http::Request& request);
inline constexpr const char* kJson = "application/json; charset=utf-8";

/// An event of a stream.
std::string event(const nlohmann::json& data);

/// A token for people; special ones by their name.
std::string shown_token(const Tokenizer& tokenizer, TokenId token);

// Objects of OpenAI's API, and llama-server's `timings`.

nlohmann::json usage_json(const Usage& usage);
/// `ended`: of the first choice.
nlohmann::json timings_json(const JobUpdate::Choice& ended, const Usage& usage,
                            double link_bytes_per_second);
/// Lists log probabilities of tokens, as the chat API has them, or in the older one's columns,
/// which begin with the prompt's where it was scored.
/// `offset`: for the columns, characters of the text before the tokens; it moves to after them.
nlohmann::json logprobs_json(Api api, const JobUpdate::Choice& choice, const Tokenizer& tokenizer,
                             std::size_t& offset);
/// A piece of a stream for one choice.
nlohmann::json chunk_json(const ReplyHead& head, int index, nlohmann::json delta,
                          nlohmann::json finish_reason, nlohmann::json logprobs = nullptr);
/// Makes the same without a choice, for usage.
nlohmann::json empty_chunk_json(const ReplyHead& head);
/// Reasoning under both names that clients read: DeepSeek's, and OpenRouter's and vLLM's.
nlohmann::json reasoning_json(const std::string& reasoning);
/// Pieces of calls, of which the last belongs to call `calls` - 1.
nlohmann::json call_pieces_json(const std::vector<ToolCall>& pieces, std::size_t calls);
/// The whole answer; `texts`: each choice, all of it; `calls`: those of each.
nlohmann::json reply_json(const ReplyHead& head, const std::vector<JobUpdate::Choice>& texts,
                          const std::vector<std::vector<ToolCall>>& calls, bool logprobs,
                          const Tokenizer& tokenizer);

}  // namespace canopy::server
