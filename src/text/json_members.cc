#include "src/text/json_members.h"

#include <optional>

#include "src/base/error.h"
#include "src/base/json.h"

namespace canopy::text {

using nlohmann::json;

namespace {
[[noreturn]] void refuse(std::string_view part, const char* key, const char* problem) {
  throw Error(std::string(part) + ": '" + key + "' " + problem);
}
}  // namespace

const json* optional_member(const json& object, const char* key, std::string_view part) {
  if (!object.is_object()) throw Error(std::string(part) + " is not an object");
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

const json& member(const json& object, const char* key, std::string_view part) {
  const json* found = optional_member(object, key, part);
  if (!found) refuse(part, key, "is missing");
  return *found;
}

const std::string& string_member(const json& object, const char* key, std::string_view part) {
  const json& value = member(object, key, part);
  if (!value.is_string()) refuse(part, key, "is not a string");
  return value.get_ref<const std::string&>();
}

bool bool_member(const json& object, const char* key, bool absent, std::string_view part) {
  const json* value = optional_member(object, key, part);
  if (!value) return absent;
  if (!value->is_boolean()) refuse(part, key, "is neither true nor false");
  return value->get<bool>();
}

const json& array_member(const json& object, const char* key, std::string_view part) {
  const json& value = member(object, key, part);
  if (!value.is_array()) refuse(part, key, "is not an array");
  return value;
}

std::int64_t integer(const json& value, std::string_view part) {
  const std::optional<std::int64_t> held = integer_in<std::int64_t>(value);
  if (!held) throw Error(std::string(part) + " is not an integer in range");
  return *held;
}

}  // namespace canopy::text
