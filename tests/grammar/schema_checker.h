#pragma once
// A schema's verdict on a value, read off the specification: for tests alone.
#include <nlohmann/json.hpp>
#include <string>

namespace canopy::grammar {

inline bool is_of_type(const nlohmann::ordered_json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number_integer();
}

inline std::size_t characters_of(const std::string& text) {
  std::size_t count = 0;
  for (const char byte : text)
    if ((static_cast<unsigned char>(byte) & 0xC0) != 0x80) ++count;
  return count;
}

/// The first keyword that the value violates; "" if it is accepted.
inline std::string violation(const nlohmann::ordered_json& schema,
                             const nlohmann::ordered_json& value,
                             const nlohmann::ordered_json& document) {
  using nlohmann::ordered_json;
  if (schema.is_boolean()) return schema.get<bool>() ? "" : "false";
  for (const auto& [keyword, given] : schema.items()) {
    bool ok = true;
    if (keyword == "type") {
      ok = given.is_string() && is_of_type(value, given);
      if (given.is_array())
        for (const ordered_json& type : given) ok = ok || is_of_type(value, type);
    } else if (keyword == "$ref") {
      const ordered_json::json_pointer target(given.get<std::string>().substr(1));
      ok = violation(document.at(target), value, document).empty();
    } else if (keyword == "anyOf") {
      ok = false;
      for (const ordered_json& each : given) ok = ok || violation(each, value, document).empty();
    } else if (keyword == "enum") {
      ok = std::find(given.begin(), given.end(), value) != given.end();
    } else if (keyword == "const") {
      ok = given == value;
    } else if (value.is_number()) {
      const double number = value;
      if (keyword == "minimum") ok = number >= given.get<double>();
      if (keyword == "maximum") ok = number <= given.get<double>();
      if (keyword == "exclusiveMinimum") ok = number > given.get<double>();
      if (keyword == "exclusiveMaximum") ok = number < given.get<double>();
    } else if (value.is_string()) {
      const std::size_t count = characters_of(value.get<std::string>());
      if (keyword == "minLength") ok = count >= given.get<std::size_t>();
      if (keyword == "maxLength") ok = count <= given.get<std::size_t>();
    } else if (value.is_array()) {
      if (keyword == "minItems") ok = value.size() >= given.get<std::size_t>();
      if (keyword == "maxItems") ok = value.size() <= given.get<std::size_t>();
      if (keyword == "items")
        for (const ordered_json& item : value) ok = ok && violation(given, item, document).empty();
    } else if (value.is_object()) {
      if (keyword == "required")
        for (const ordered_json& name : given) ok = ok && value.contains(name.get<std::string>());
      if (keyword == "properties")
        for (const auto& [name, each] : given.items())
          ok = ok && (!value.contains(name) || violation(each, value.at(name), document).empty());
      if (keyword == "additionalProperties")
        for (const auto& [name, each] : value.items()) {
          const bool named = schema.contains("properties") && schema["properties"].contains(name);
          ok = ok && (named || violation(given, each, document).empty());
        }
    }
    if (!ok) return keyword;
  }
  return "";
}

}  // namespace canopy::grammar
