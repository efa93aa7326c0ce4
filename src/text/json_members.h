#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace canopy::text {

/// Members of an object, checked. `part` names the object in messages ("pre_tokenizer[1]").
/// An optional member may be absent or null; a member of another type is an Error.
const nlohmann::json& member(const nlohmann::json& object, const char* key, std::string_view part);
const nlohmann::json* optional_member(const nlohmann::json& object, const char* key,
                                      std::string_view part);
const std::string& string_member(const nlohmann::json& object, const char* key,
                                 std::string_view part);
bool bool_member(const nlohmann::json& object, const char* key, bool absent, std::string_view part);
/// Throws Error unless `value` is an integer.
std::int64_t integer(const nlohmann::json& value, std::string_view part);
const nlohmann::json& array_member(const nlohmann::json& object, const char* key,
                                   std::string_view part);

}  // namespace canopy::text
