#pragma once
#include "src/server/request/completion_request.h"
#include "src/server/request/fields.h"

namespace canopy::server {

/// Reads members that other servers have and this one has no use for, after those that it has:
/// a value that changes nothing passes, what is a mere hint is named in the request's warnings, and
/// what would change the text is refused. Throws ApiError 400.
void read_others(Fields& fields, CompletionRequest& request);

}  // namespace canopy::server
