#pragma once
#include "src/server/request/completion_request.h"
#include "src/server/request/fields.h"

namespace canopy::server {

// Members of a chat request. Each throws ApiError 400 naming the one that is wrong.

void read_messages(Fields& fields, CompletionRequest& request);
/// `response_format`.
void read_format(Fields& fields, CompletionRequest& request);
/// `tools` and what is said of them, after the messages and the format.
void read_tools(Fields& fields, CompletionRequest& request);

}  // namespace canopy::server
