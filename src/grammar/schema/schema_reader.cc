#include "src/grammar/schema/schema_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/grammar/automaton.h"
#include "src/grammar/limits.h"
#include "src/grammar/schema/formats.h"

namespace canopy::grammar {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, kTypes> kTypeNames{"object",  "array",   "string", "number",
                                                          "integer", "boolean", "null"};

/// Keywords that change nothing about what is accepted.
constexpr std::array<std::string_view, 16> kAnnotations{
    "discriminator",  // of OpenAPI, next to oneOf
    "title",           "description",      "default",       "examples",  "example",
    "$comment",        "deprecated",       "readOnly",      "writeOnly", "$schema",
    "contentEncoding", "contentMediaType", "contentSchema", "$defs",     "definitions"};

/// Keywords of one type's values, and the type.
constexpr std::array<std::pair<std::string_view, Type>, 20> kOfTypes{{
    {"properties", Type::kObject},
    {"required", Type::kObject},
    {"additionalProperties", Type::kObject},
    {"unevaluatedProperties", Type::kObject},
    {"propertyNames", Type::kObject},
    {"minProperties", Type::kObject},
    {"items", Type::kArray},
    {"prefixItems", Type::kArray},
    {"additionalItems", Type::kArray},
    {"uniqueItems", Type::kArray},
    {"minItems", Type::kArray},
    {"maxItems", Type::kArray},
    {"minLength", Type::kString},
    {"maxLength", Type::kString},
    {"format", Type::kString},
    {"pattern", Type::kString},
    {"minimum", Type::kNumber},
    {"maximum", Type::kNumber},
    {"exclusiveMinimum", Type::kNumber},
    {"exclusiveMaximum", Type::kNumber},
}};

/// Keywords that say all about a value, so that Canopy takes only `type` next to some of them.
constexpr std::array<std::string_view, 5> kAlone{"$ref", "anyOf", "oneOf", "enum", "const"};

std::string spelled(const ordered_json& value) {
  return value.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
}

std::string in_quotes(std::string_view name) {
  std::string out = "\"";
  out += name;
  return out += '"';
}

bool is_annotation(const SchemaPlace& place, std::string_view keyword) {
  if (std::ranges::find(kAnnotations, keyword) != kAnnotations.end()) return true;
  if (keyword.starts_with("x-")) return true;  // of OpenAPI and of servers' own
  // Elsewhere it would change what references point to.
  return keyword == "$id" && place.pointer == "#";
}

std::optional<Type> type_of_keyword(std::string_view keyword) {
  for (const auto& [name, type] : kOfTypes)
    if (name == keyword) return type;
  return std::nullopt;
}

std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

bool has_type(const ordered_json& value, Types types) {
  const auto has = [&](Type type) { return types[static_cast<std::size_t>(type)]; };
  switch (value.type()) {
    case ordered_json::value_t::object:
      return has(Type::kObject);
    case ordered_json::value_t::array:
      return has(Type::kArray);
    case ordered_json::value_t::string:
      return has(Type::kString);
    case ordered_json::value_t::boolean:
      return has(Type::kBoolean);
    case ordered_json::value_t::null:
      return has(Type::kNull);
    case ordered_json::value_t::number_integer:
    case ordered_json::value_t::number_unsigned:
    case ordered_json::value_t::binary:  // large_integer()
      return has(Type::kInteger) || has(Type::kNumber);
    case ordered_json::value_t::number_float: {
      const double number = value.get<double>();
      return has(Type::kNumber) || (has(Type::kInteger) && std::floor(number) == number);
    }
    default:
      return false;
  }
}

/// The text of a URI's fragment: "%20" is a space.
std::string unescaped(std::string_view fragment) {
  std::string out;
  for (std::size_t i = 0; i < fragment.size(); ++i) {
    unsigned code = 0;
    const char* digits = fragment.data() + i + 1;
    if (fragment[i] == '%' && fragment.size() - i > 2 &&
        std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2) {
      out += static_cast<char>(code);
      i += 2;
    } else {
      out += fragment[i];
    }
  }
  return out;
}

Types all_types() { return Types().set(); }

Type type_named(const SchemaPlace& place, const ordered_json& name) {
  if (name.is_string()) {
    const auto found = std::ranges::find(kTypeNames, name.get_ref<const std::string&>());
    if (found != kTypeNames.end()) return static_cast<Type>(found - kTypeNames.begin());
  }
  place.fail("\"type\" is " + spelled(name) + ", not a type of JSON Schema or a list of them");
}

/// Throws Error unless the value of a keyword that is not supported is the one that changes
/// nothing.
void check_neutral(const SchemaPlace& place, std::string_view keyword, const ordered_json& value) {
  bool neutral = true;
  if (keyword == "uniqueItems") {
    neutral = value == false;
  } else if (keyword == "minProperties") {
    neutral = value == 0;
  } else if (keyword == "unevaluatedProperties") {
    neutral = value.is_boolean();
  } else if (keyword == "propertyNames") {  // names are strings
    neutral = value == true || value.is_object();
    if (value.is_object())
      for (const auto& [inner, what] : value.items())
        neutral &= is_annotation(place, inner) || (inner == "type" && what == "string");
  }
  if (neutral) return;
  const bool other_value = keyword != "propertyNames";
  place.fail("the keyword " + in_quotes(keyword) + " is not supported" +
             (other_value ? " with the value " + spelled(value) : std::string()));
}

/// Tightens `bound` by the keyword's value. `order`: whether the first bound is the tighter one.
template <class Tighter>
void tighten(std::optional<Bound>& bound, const SchemaPlace& place, std::string_view keyword,
             bool included, Tighter&& tighter) {
  const ordered_json* value = place.find(keyword);
  if (value == nullptr) return;
  if (!large_integer(*value) && (!value->is_number() || !std::isfinite(value->get<double>())))
    place.fail(in_quotes(keyword) + " is not a number");
  const Bound other{.value = to_decimal(*value), .included = included};
  const bool same_but_excluded = bound && other.value == bound->value && !included;
  if (!bound || tighter(other.value, bound->value) || same_but_excluded) bound = other;
}

}  // namespace

SchemaPlace SchemaPlace::under(std::string_view keyword) const {
  return {.schema = find(keyword), .pointer = pointer + "/" + std::string(keyword)};
}

SchemaPlace SchemaPlace::under(std::string_view keyword, std::string_view name) const {
  const ordered_json& values = *find(keyword);
  return {.schema = &*values.find(name),
          .pointer = pointer + "/" + std::string(keyword) + "/" + escaped(name)};
}

SchemaPlace SchemaPlace::under(std::string_view keyword, std::size_t index) const {
  return {.schema = &(*find(keyword))[index],
          .pointer = pointer + "/" + std::string(keyword) + "/" + std::to_string(index)};
}

const ordered_json* SchemaPlace::find(std::string_view keyword) const {
  const auto found = schema->find(keyword);
  if (found == schema->end() || (found->is_null() && keyword != "const")) return nullptr;
  return &*found;
}

void SchemaPlace::fail(const std::string& cause) const {
  constexpr std::size_t kMost = 400;  // of each, which both quote the schema
  throw Error("JSON schema, " + printable(pointer, kMost) + ": " + printable(cause, kMost));
}

bool says_more_than(const SchemaPlace& place, std::string_view keyword) {
  for (const auto& [name, value] : place.schema->items())
    if (name != keyword && !is_annotation(place, name) && place.find(name) != nullptr) return true;
  return false;
}

void check_keywords(const SchemaPlace& place) {
  if (!place.schema->is_object()) place.fail("a schema is an object, true or false");
  std::string alone;
  const auto is_absent = [&](const std::string& keyword) { return place.find(keyword) == nullptr; };
  for (const auto& [keyword, value] : place.schema->items())
    if (alone.empty() && !is_absent(keyword) && std::ranges::find(kAlone, keyword) != kAlone.end())
      alone = keyword;
  const bool lists_values = alone == "enum" || alone == "const";
  for (const auto& [keyword, value] : place.schema->items()) {
    if (is_annotation(place, keyword) || keyword == alone || is_absent(keyword)) continue;
    const bool known = keyword == "type" || keyword == "allOf" || type_of_keyword(keyword) ||
                       std::ranges::find(kAlone, keyword) != kAlone.end();
    if (!known) place.fail("the keyword " + in_quotes(keyword) + " is not supported");
    check_neutral(place, keyword, value);
    const bool joined =
        alone.empty() ||
        (lists_values && (keyword == "type" || keyword == "enum" || keyword == "const"));
    if (!joined)
      place.fail("the keyword " + in_quotes(keyword) + " next to " + in_quotes(alone) +
                 " is not supported");
  }
}

Types types_of(const SchemaPlace& place) {
  Types types;
  const auto add = [&](Type type) { types.set(static_cast<std::size_t>(type)); };
  if (const ordered_json* given = place.find("type")) {
    if (!given->is_array()) {
      add(type_named(place, *given));
    } else {
      if (given->empty()) place.fail("\"type\" is an empty list: no value has a type in it");
      for (const ordered_json& name : *given) add(type_named(place, name));
    }
    return types;
  }
  for (const auto& [keyword, value] : place.schema->items())
    if (const auto type = type_of_keyword(keyword); type && place.find(keyword) != nullptr)
      add(*type);
  return types.none() ? all_types() : types;
}

std::uint32_t count_of(const SchemaPlace& place, std::string_view keyword, std::uint32_t absent) {
  const ordered_json* value = place.find(keyword);
  if (value == nullptr) return absent;
  const double count = value->is_number() ? value->get<double>() : -1;
  if (count < 0 || std::floor(count) != count) place.fail(in_quotes(keyword) + " is not a count");
  if (count > kMostCount)
    place.fail(in_quotes(keyword) + " is more than " + std::to_string(kMostCount));
  return static_cast<std::uint32_t>(count);
}

namespace {

std::string text_of(const SchemaPlace& place, std::string_view keyword) {
  const ordered_json* text = place.find(keyword);
  if (text == nullptr) return {};
  if (!text->is_string()) place.fail(in_quotes(keyword) + " is not a text");
  return *text;
}

}  // namespace

std::string format_of(const SchemaPlace& place) { return text_of(place, "format"); }

std::string pattern_of(const SchemaPlace& place) { return text_of(place, "pattern"); }

void fail_by_format(const SchemaPlace& place, const std::string& format) {
  place.fail("the format " + in_quotes(format) + " is not supported");
}

Range range_of(const SchemaPlace& place) {
  Range range;
  if (const std::string format = format_of(place); !format.empty()) {
    const std::optional<Range> named = range_of_format(format);
    if (!named) fail_by_format(place, format);
    range = *named;
  }
  const auto greater = [](const Decimal& a, const Decimal& b) { return a > b; };
  const auto less = [](const Decimal& a, const Decimal& b) { return a < b; };
  tighten(range.least, place, "minimum", true, greater);
  tighten(range.least, place, "exclusiveMinimum", false, greater);
  tighten(range.most, place, "maximum", true, less);
  tighten(range.most, place, "exclusiveMaximum", false, less);
  if (range.empty()) place.fail("no number lies between \"minimum\" and \"maximum\"");
  return range;
}

std::optional<std::vector<ordered_json>> values_of(const SchemaPlace& place) {
  const ordered_json* list = place.find("enum");
  const ordered_json* single = place.find("const");
  if (list == nullptr && single == nullptr) return std::nullopt;
  if (list != nullptr && !list->is_array()) place.fail("\"enum\" is not a list");
  const Types types = place.find("type") == nullptr ? all_types() : types_of(place);
  std::vector<ordered_json> values;
  if (list == nullptr) values.push_back(*single);
  if (list != nullptr)
    for (const ordered_json& value : *list)
      if (single == nullptr || value == *single) values.push_back(value);
  std::erase_if(values, [&](const ordered_json& value) { return !has_type(value, types); });
  if (values.empty()) place.fail("no value satisfies \"enum\", \"const\" and \"type\"");
  return values;
}

std::vector<std::string> required_of(const SchemaPlace& place) {
  std::vector<std::string> names;
  const ordered_json* given = place.find("required");
  if (given == nullptr) return names;
  if (!given->is_array()) place.fail("\"required\" is not a list");
  std::set<std::string> seen;
  for (const ordered_json& name : *given) {
    if (!name.is_string()) place.fail("\"required\" has something other than a name");
    if (seen.insert(name.get<std::string>()).second) names.push_back(name.get<std::string>());
  }
  return names;
}

namespace {

/// Adds to `out`; `visits` bounds what references to schemas with more of them may cost.
void add_conjuncts(const SchemaPlace& place, const ordered_json& document, std::size_t& visits,
                   std::vector<SchemaPlace>& out) {
  if (++visits > kMostProperties)
    place.fail("\"allOf\" joins more than " + std::to_string(kMostProperties) +
               " schemas, or leads back to itself");
  if (*place.schema == true) return;
  if (*place.schema == false) place.fail("no value satisfies false in \"allOf\"");
  check_keywords(place);
  if (place.find("$ref") != nullptr)
    return add_conjuncts(resolve(place, document), document, visits, out);
  if (const ordered_json* all = place.find("allOf")) {
    if (!all->is_array() || all->empty())
      place.fail("\"allOf\" is not a list of schemas, one at least");
    for (std::size_t i = 0; i < all->size(); ++i)
      add_conjuncts(place.under("allOf", i), document, visits, out);
  }
  if (says_more_than(place, "allOf")) out.push_back(place);
}

}  // namespace

std::vector<SchemaPlace> conjuncts_of(const SchemaPlace& place, const ordered_json& document) {
  std::vector<SchemaPlace> out;
  std::size_t visits = 0;
  add_conjuncts(place, document, visits, out);
  return out;
}

namespace {

bool is_object(const SchemaPlace& place) {
  const Types types = types_of(place);
  return types.count() == 1 && types[static_cast<std::size_t>(Type::kObject)];
}

/// The values that a property may have, where they are listed.
std::optional<std::vector<ordered_json>> listed_values(const SchemaPlace& place,
                                                       const std::string& property) {
  const ordered_json* properties = place.find("properties");
  if (properties == nullptr || !properties->is_object() || !properties->contains(property))
    return std::nullopt;
  const SchemaPlace inside = place.under("properties", property);
  if (!inside.schema->is_object()) return std::nullopt;
  return values_of(inside);
}

/// True if each two of the objects differ in this property's values.
bool differ_in(const std::vector<SchemaPlace>& objects, const std::string& property) {
  std::vector<ordered_json> seen;
  for (const SchemaPlace& object : objects) {
    const auto values = listed_values(object, property);
    if (!values) return false;
    for (const ordered_json& value : *values)
      if (std::ranges::find(seen, value) != seen.end()) return false;
    seen.insert(seen.end(), values->begin(), values->end());
  }
  return true;
}

}  // namespace

Choices exclusive_choices_of(const SchemaPlace& place, const ordered_json& document) {
  const ordered_json* given = place.find("oneOf");
  if (!given->is_array() || given->empty())
    place.fail("\"oneOf\" is not a list of schemas, one at least");
  if (given->size() > kMostProperties)
    place.fail("\"oneOf\" has more than " + std::to_string(kMostProperties) + " schemas");
  const auto refuse = [&] {
    place.fail(
        "the keyword \"oneOf\" is not supported, but of schemas that no value satisfies two "
        "of: other types, or objects with other values of one property");
  };
  Choices choices;
  std::vector<SchemaPlace> objects;
  Types types;
  for (std::size_t i = 0; i < given->size(); ++i) {
    const std::vector<SchemaPlace> parts = conjuncts_of(place.under("oneOf", i), document);
    if (parts.size() != 1) refuse();
    const SchemaPlace& part = choices.places.emplace_back(parts[0]);
    for (const char* inner : {"anyOf", "oneOf", "allOf"})
      if (part.find(inner) != nullptr) refuse();
    if (is_object(part) && part.find("enum") == nullptr && part.find("const") == nullptr) {
      objects.push_back(part);
      continue;
    }
    Types own = types_of(part);
    if (own[static_cast<std::size_t>(Type::kNumber)])
      own.set(static_cast<std::size_t>(Type::kInteger));
    if ((own & types).any()) refuse();
    types |= own;
  }
  if (!objects.empty() && types[static_cast<std::size_t>(Type::kObject)]) refuse();
  if (objects.size() < 2) return choices;
  const ordered_json* properties = objects[0].find("properties");
  if (properties != nullptr && properties->is_object())
    for (const auto& [name, schema] : properties->items())
      if (choices.tag.empty() && differ_in(objects, name)) choices.tag = name;
  if (choices.tag.empty()) refuse();
  return choices;
}

SchemaPlace resolve(const SchemaPlace& place, const ordered_json& document) {
  const ordered_json* given = place.find("$ref");
  if (!given->is_string()) place.fail("\"$ref\" is not a text");
  const auto& reference = given->get_ref<const std::string&>();
  if (reference != "#" && !reference.starts_with("#/"))
    place.fail("\"$ref\" points to " + in_quotes(reference) +
               ": only places in the schema (\"#/...\")" + " are supported");
  const auto missing = [&] {
    place.fail("\"$ref\" points to " + in_quotes(reference) + ", which is not there");
  };
  try {
    const ordered_json::json_pointer pointer(unescaped(reference.substr(1)));
    if (!document.contains(pointer)) missing();
    return {.schema = &document.at(pointer), .pointer = reference};
  } catch (const ordered_json::exception&) {
    missing();
  }
  return {};
}

}  // namespace canopy::grammar
