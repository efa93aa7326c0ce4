#pragma once
#include <string>

namespace canopy {

/// JSON as text: one line, or lines that are indented by `indent` blanks. Bytes that are no UTF-8,
/// as names of files may hold, are replaced. For nlohmann::json and ordered_json.
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace canopy
