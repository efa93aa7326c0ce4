#pragma once
#include <initializer_list>
#include <string>
#include <vector>

#include "src/server/request/completion_request.h"
#include "src/server/request/fields.h"

namespace canopy::server {

/// The token id that a member holds. Throws ApiError 400 naming it.
TokenId token_of(const nlohmann::ordered_json& value, const std::string& name, int vocab,
                 const Fields& fields);
/// Reads the members that say how tokens are drawn. Throws ApiError 400.
void read_sampling(Fields& fields, const Defaults& defaults, CompletionRequest& request);
/// The strings of the members with these names, each a string or a list of them. Throws ApiError
/// 400.
std::vector<std::string> read_stops(Fields& fields, std::initializer_list<const char*> names);

/// Reads `stop_token_ids` and `min_tokens`, once the other members about lengths, schemas and tools
/// are read. Throws ApiError 400.
void read_ends(Fields& fields, const Defaults& defaults, CompletionRequest& request);

}  // namespace canopy::server
