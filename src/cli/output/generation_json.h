#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/engine/engine.h"

namespace canopy::cli {

/// A generated text, up to the first stop string: "text", "tokens", "finish_reason",
/// "cached_tokens" (of its prompt), and "logprobs" when asked for, in OpenAI's form: each "token"
/// as text (bytes that are no UTF-8 are replaced) and as "bytes" (null for special tokens, which
/// have a name alone), "logprob", "top_logprobs"; and its "id".
nlohmann::json text_json(const Tokenizer& tokenizer, const TextReport& report,
                         const std::vector<std::string>& stops);

/// Describes what each of a text's steps gained, and when it was over, in seconds since the
/// generation began.
nlohmann::json steps_json(const TextReport& report);

/// Describes what a generation cost, in all and per token, and the plan that it followed.
nlohmann::json costs_json(const Engine& engine, const BatchReport& report);

}  // namespace canopy::cli
