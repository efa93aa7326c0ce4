#pragma once
#include <bitset>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/grammar/schema/decimal.h"

namespace canopy::grammar {

/// A schema inside a document, and where: "#/properties/a".
struct SchemaPlace {
  const nlohmann::ordered_json* schema = nullptr;
  std::string pointer = "#";

  /// Returns the schema under a keyword, under a name or number in there.
  SchemaPlace under(std::string_view keyword) const;
  SchemaPlace under(std::string_view keyword, std::string_view name) const;
  SchemaPlace under(std::string_view keyword, std::size_t index) const;
  /// The keyword's value; nullptr if absent, or null where that is no value: those who write
  /// schemas by machine leave it so.
  const nlohmann::ordered_json* find(std::string_view keyword) const;
  /// Throws Error: the place, then this.
  [[noreturn]] void fail(const std::string& cause) const;
};

enum class Type : std::uint8_t { kObject, kArray, kString, kNumber, kInteger, kBoolean, kNull };
inline constexpr int kTypes = 7;

using Types = std::bitset<kTypes>;

/// True if it has keywords other than this one and annotations.
bool says_more_than(const SchemaPlace& place, std::string_view keyword);
/// Throws Error unless the schema is an object of keywords that are supported, and that do not
/// stand next to others that Canopy cannot join them with.
void check_keywords(const SchemaPlace& place);
/// Returns the types that `type` names; else those that the keywords are about; else all.
Types types_of(const SchemaPlace& place);
/// A keyword that counts characters or items; `absent` if it is not there.
std::uint32_t count_of(const SchemaPlace& place, std::string_view keyword, std::uint32_t absent);
/// Return `format` and `pattern`; empty if absent.
std::string format_of(const SchemaPlace& place);
std::string pattern_of(const SchemaPlace& place);
[[noreturn]] void fail_by_format(const SchemaPlace& place, const std::string& format);
/// Returns the numbers that `minimum` and the like leave, and a `format` of numbers. Throws Error
/// if there are none.
Range range_of(const SchemaPlace& place);
/// Returns the values that `enum` and `const` leave, by `type` too; absent without these keywords.
std::optional<std::vector<nlohmann::ordered_json>> values_of(const SchemaPlace& place);
/// The names of `required`, each once.
std::vector<std::string> required_of(const SchemaPlace& place);
/// The schemas that `allOf` of this place joins, from inside others of its kind and references,
/// each with something to say; the place itself among them, where it has more than `allOf`.
std::vector<SchemaPlace> conjuncts_of(const SchemaPlace& place,
                                      const nlohmann::ordered_json& document);
/// Schemas of which a value satisfies one at most; objects among them by the values of `tag`, where
/// they have it.
struct Choices {
  std::vector<SchemaPlace> places;
  std::string tag;
};
/// Returns the choices of `oneOf`. Throws Error where it is not plain to see that a value satisfies
/// one at most.
Choices exclusive_choices_of(const SchemaPlace& place, const nlohmann::ordered_json& document);
/// Returns the schema that `$ref` points to. Throws Error unless it is a place in the document.
SchemaPlace resolve(const SchemaPlace& place, const nlohmann::ordered_json& document);

}  // namespace canopy::grammar
