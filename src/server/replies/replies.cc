#include "src/server/replies/replies.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/json_text.h"
#include "src/base/utf8.h"
#include "src/server/replies/api_error.h"

namespace canopy::server {

namespace {

using nlohmann::json;

/// JSON has no infinity: a token that cannot come has the least number.
double finite(double logprob) {
  return std::max(logprob, static_cast<double>(std::numeric_limits<float>::lowest()));
}

std::size_t characters(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

json entry(const Tokenizer& tokenizer, const TokenLogprob& of) {
  json bytes = json::array();
  for (const char byte : tokenizer.piece(of.token))
    bytes.push_back(static_cast<unsigned char>(byte));
  return {{"id", of.token},
          {"token", shown_token(tokenizer, of.token)},
          {"bytes", tokenizer.is_special(of.token) ? json() : bytes},
          {"logprob", finite(of.logprob)}};
}

json base(const ReplyHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", "canopy"}};
}

json message_json(const JobUpdate::Choice& text, const std::vector<ToolCall>& calls) {
  json message{{"role", "assistant"}, {"content", text.text}, {"refusal", nullptr}};
  if (!text.reasoning.empty()) message.update(reasoning_json(text.reasoning));
  if (calls.empty()) return message;
  if (text.text.empty()) message["content"] = nullptr;
  message["tool_calls"] = call_pieces_json(calls, calls.size());
  return message;
}

}  // namespace

nlohmann::ordered_json parse_body(const http::Request& request) {
  try {
    return parse_ordered_json(request.body, LargeIntegers::kKept);
  } catch (const Error& error) {
    throw ApiError(400, std::string("the body: ") + reported(error));
  }
}

std::string event(const json& data) { return "data: " + json_text(data) + "\n\n"; }

std::string shown_token(const Tokenizer& tokenizer, TokenId token) {
  return to_utf8(tokenizer.is_special(token) ? tokenizer.token_string(token)
                                             : tokenizer.piece(token));
}

json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

json timings_json(const JobUpdate::Choice& ended, const Usage& usage,
                  double link_bytes_per_second) {
  const auto tokens = static_cast<double>(ended.tokens.size());
  const double decode = (ended.time - ended.first_sweep).count();
  json out{{"cache_n", usage.cached_tokens},
           {"prefix_n", ended.known_tokens},
           {"prompt_n", usage.prompt_tokens - usage.cached_tokens},
           {"prompt_ms", 1000 * ended.first_sweep.count()},
           {"predicted_n", ended.tokens.size()},
           {"predicted_ms", 1000 * decode},
           {"draft_n", ended.drafted},
           {"draft_n_accepted", ended.accepted},
           {"sweeps", ended.sweeps},
           {"tokens_per_sweep", tokens / std::max(1, ended.sweeps)},
           {"link_bytes_per_second", link_bytes_per_second}};
  out["predicted_per_second"] = decode > 0 ? json((tokens - 1) / decode) : json();
  return out;
}

json logprobs_json(Api api, const JobUpdate::Choice& choice, const Tokenizer& tokenizer,
                   std::size_t& offset) {
  if (api == Api::kChat) {
    json content = json::array();
    for (const TokenReport& token : choice.logprobs) {
      json one = entry(tokenizer, token.chosen);
      one["top_logprobs"] = json::array();
      for (const TokenLogprob& top : token.top)
        one["top_logprobs"].push_back(entry(tokenizer, top));
      content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  json out{{"tokens", json::array()},
           {"token_logprobs", json::array()},
           {"top_logprobs", json::array()},
           {"text_offset", json::array()}};
  const auto add = [&](TokenId token, json logprob, json top) {
    out["tokens"].push_back(shown_token(tokenizer, token));
    out["token_logprobs"].push_back(std::move(logprob));
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(offset);
    offset += characters(tokenizer.piece(token));
  };
  const auto add_all = [&](const std::vector<TokenReport>& tokens) {
    for (const TokenReport& token : tokens) {
      json top = json::object();  // of tokens that look alike, the likeliest
      for (const TokenLogprob& one : token.top)
        top.emplace(shown_token(tokenizer, one.token), finite(one.logprob));
      add(token.chosen.token, finite(token.chosen.logprob), std::move(top));
    }
  };
  if (choice.prompt) {
    add(choice.prompt->first, nullptr, nullptr);
    add_all(choice.prompt->rest);
  }
  add_all(choice.logprobs);
  return out;
}

json chunk_json(const ReplyHead& head, int index, json delta, json finish_reason, json logprobs) {
  json out = base(head, head.api == Api::kChat ? "chat.completion.chunk" : "text_completion");
  json choice{{"index", index}, {"finish_reason", std::move(finish_reason)}};
  choice["logprobs"] = std::move(logprobs);
  if (head.api == Api::kChat)
    choice["delta"] = std::move(delta);
  else
    choice["text"] = delta.value("content", std::string());
  out["choices"] = json::array({std::move(choice)});
  return out;
}

json empty_chunk_json(const ReplyHead& head) {
  json out = base(head, head.api == Api::kChat ? "chat.completion.chunk" : "text_completion");
  out["choices"] = json::array();
  return out;
}

json reasoning_json(const std::string& reasoning) {
  return {{"reasoning_content", reasoning}, {"reasoning", reasoning}};
}

json call_pieces_json(const std::vector<ToolCall>& pieces, std::size_t calls) {
  json out = json::array();
  std::size_t index = calls - 1;
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    json one{{"index", index}, {"function", {{"arguments", piece->arguments}}}};
    if (!piece->name.empty()) {  // the first piece of a call; the one before is of another
      one["id"] = piece->id;
      one["type"] = "function";
      one["function"]["name"] = piece->name;
      --index;
    }
    out.insert(out.begin(), std::move(one));
  }
  return out;
}

json reply_json(const ReplyHead& head, const std::vector<JobUpdate::Choice>& texts,
                const std::vector<std::vector<ToolCall>>& calls, bool logprobs,
                const Tokenizer& tokenizer) {
  json out = base(head, head.api == Api::kChat ? "chat.completion" : "text_completion");
  out["choices"] = json::array();
  int index = 0;
  for (const JobUpdate::Choice& text : texts) {
    json choice{{"index", index++}, {"finish_reason", text.finish_reason}};
    std::size_t offset = 0;
    choice["logprobs"] = logprobs ? logprobs_json(head.api, text, tokenizer, offset) : json();
    if (head.api == Api::kChat)
      choice["message"] = message_json(text, calls[static_cast<std::size_t>(index) - 1]);
    else
      choice["text"] = text.text;
    out["choices"].push_back(std::move(choice));
  }
  return out;
}

}  // namespace canopy::server
