#pragma once
#include "src/server/request/completion_request.h"
#include "src/server/request/fields.h"

namespace canopy::server {

/// Reads `system` and `messages` of Anthropic's API into a chat's messages: blocks of text, of
/// reasoning, of calls and of their results. Texts of a message are lines of one, and messages of
/// one role that follow each other are one. Throws ApiError 400 naming the block that is wrong.
void read_turns(Fields& fields, CompletionRequest& request);

}  // namespace canopy::server
