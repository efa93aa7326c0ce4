#pragma once
#include <string>

#include "src/server/request/completion_request.h"
#include "src/server/request/fields.h"

namespace canopy::server {

/// Reads `instructions` and `input` of OpenAI's Responses API into a chat's messages: items that
/// are messages, calls, their outputs, and reasoning. `history`: the items of earlier responses, a
/// list, which come first. Items that a model wrote one after the other are one message, as are
/// instructions that follow each other. Puts all items into the request's ResponseTerms, which it
/// must have. Throws ApiError 400 naming the item that is wrong.
void read_input(Fields& fields, const nlohmann::ordered_json& history, CompletionRequest& request);

/// Reasoning as `encrypted_content` of an item, for clients that send nothing else of it back.
std::string sealed_reasoning(const std::string& reasoning);

}  // namespace canopy::server
