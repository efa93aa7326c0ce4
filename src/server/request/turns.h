#pragma once
// Private to the readers of APIs whose turns are lists of parts.
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "src/server/request/fields.h"

namespace canopy::server {

/// "messages[2]".
std::string in_list(const std::string& place, std::size_t at);
/// Adds a line to a text, without an empty one.
void add_line(std::string& text, const std::string& line);
/// Returns the text that an object must have. Throws ApiError where it is missing.
std::string required_text(Fields& object, const char* name);
/// Adds a message of a chat. `joins`: to the last one, where both have one role.
void add_turn(nlohmann::ordered_json& messages, nlohmann::ordered_json turn, bool joins);

}  // namespace canopy::server
