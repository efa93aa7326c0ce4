#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/engine/engine.h"

namespace canopy::cli {

/// The whole text of some tokens; half a character at its end is replaced.
std::string text_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens);

/// A generated text: "text", "tokens", "finish_reason", and "logprobs" when asked for.
nlohmann::json text_json(const Tokenizer& tokenizer, const GenerateReport& report);

/// What each of a text's steps gained, and when it was over, in seconds since the generation began.
nlohmann::json steps_json(const GenerateReport& report);

/// What a generation cost, in all and per token, and the plan that it followed.
nlohmann::json costs_json(const Engine& engine, const BatchReport& report);

/// One line, or indented; bytes that are no UTF-8 are replaced.
std::string dump(const nlohmann::json& value, bool indented);

}  // namespace canopy::cli
