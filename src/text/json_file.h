#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace canopy::text {

/// Reads and parses a JSON file that may be hostile: at most kLargestJson bytes and kDeepestJson
/// levels. Throws Error naming the file and, for bad syntax, the byte.
nlohmann::json read_json(const std::filesystem::path& file);

/// Twice the largest tokenizer.json in wide use (34 MB for 262,144 tokens). No more: a parsed
/// document can take twenty times its bytes.
inline constexpr std::uintmax_t kLargestJson = 64 << 20;
inline constexpr int kDeepestJson = 64;

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
