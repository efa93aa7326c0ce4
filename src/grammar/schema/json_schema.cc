#include "src/grammar/schema/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/limits.h"
#include "src/grammar/pattern/pattern.h"
#include "src/grammar/schema/formats.h"
#include "src/grammar/schema/json_parts.h"
#include "src/grammar/schema/numeral.h"
#include "src/grammar/schema/schema_reader.h"

namespace canopy::grammar {
namespace {

using nlohmann::ordered_json;

class SchemaCompiler {
 public:
  SchemaCompiler(const ordered_json& document, Values values)
      : document_(document), values_(values), parts_(automaton_) {}

  Grammar compile() {
    const StateId start = value({.schema = &document_, .pointer = "#"}, values_);
    // A reference may lead to further ones; a queue, as they may be many.
    while (!pending_.empty()) {
      const Pending next = std::move(pending_.front());
      pending_.pop_front();
      const StateId made = !next.tag.empty() ? object(std::span(&next.place, 1), next.tag)
                           : next.merged     ? all_of(next.place, next.values)
                                             : compiled(next.place, next.values);
      made_.emplace_back(made, next.place.pointer);
      automaton_.become(next.state, made);
    }
    check(start);
    return {std::move(automaton_), start};
  }

 private:
  /// A schema that is compiled later, into a state that is there already.
  struct Pending {
    SchemaPlace place;
    Values values;
    bool merged;      // an `allOf`, of which its place is a part
    std::string tag;  // a property that is required, too; or none
    StateId state;
  };

  StateId value(const SchemaPlace& place, Values values = Values::kAll) {
    const StateId state = compiled(place, values);
    made_.emplace_back(state, place.pointer);
    return state;
  }

  StateId compiled(const SchemaPlace& place, Values values) {
    if (place.schema->is_boolean())
      return place.schema->get<bool>() ? any(values) : Automaton::kDead;
    check_keywords(place);
    if (place.find("$ref") != nullptr)
      return later(resolve(place, document_), values, /*merged=*/false);
    if (place.find("anyOf") != nullptr) return any_of(place, values);
    if (place.find("oneOf") != nullptr) return one_of(place, values);
    if (place.find("allOf") != nullptr) return later(place, values, /*merged=*/true);
    const bool objects = values == Values::kObjects;
    if (auto listed = values_of(place)) {
      if (objects) std::erase_if(*listed, [](const auto& each) { return !each.is_object(); });
      return parts_.one_of(*listed);
    }
    const Types types = types_of(place);
    const auto has = [&](Type type) {
      return types[static_cast<std::size_t>(type)] && (!objects || type == Type::kObject);
    };
    if (types.all() && place.find("type") == nullptr) return any(values);
    std::vector<StateId> ways;
    if (has(Type::kObject)) ways.push_back(object(std::span(&place, 1)));
    if (has(Type::kArray)) ways.push_back(array(place));
    if (has(Type::kString)) ways.push_back(string(std::span(&place, 1)));
    if (has(Type::kNumber))
      ways.push_back(number(place, Numbers::kAll));
    else if (has(Type::kInteger))
      ways.push_back(number(place, Numbers::kWhole));
    if (has(Type::kBoolean)) ways.push_back(parts_.one_of(kBooleans));
    if (has(Type::kNull)) ways.push_back(parts_.one_of(kNull));
    return automaton_.fork(ways);
  }

  StateId any(Values values) {
    return values == Values::kObjects ? parts_.object({}, any()) : any();
  }

  StateId any() {
    if (any_ != Automaton::kDead) return any_;
    any_ = automaton_.reserve();
    automaton_.become(any_,
                      automaton_.fork(std::vector{
                          parts_.object({}, any_), parts_.array({}, any_, 0, kUncounted),
                          parts_.string(0, kUncounted), add_numerals(automaton_, Numbers::kAll, {}),
                          parts_.one_of(kBooleans), parts_.one_of(kNull)}));
    return any_;
  }

  /// The state of a schema that may lead back to itself.
  StateId later(const SchemaPlace& place, Values values, bool merged, const std::string& tag = {}) {
    const auto [entry, is_new] =
        later_.try_emplace(std::tuple(place.pointer, values, merged, tag), Automaton::kDead);
    if (is_new) {
      if (later_.size() > kMostReferences)
        place.fail("the schema has more than " + std::to_string(kMostReferences) +
                   " different targets of \"$ref\", \"allOf\" and \"oneOf\"");
      entry->second = automaton_.reserve();
      pending_.push_back({place, values, merged, tag, entry->second});
    }
    return entry->second;
  }

  StateId any_of(const SchemaPlace& place, Values values) {
    const ordered_json& choices = *place.find("anyOf");
    if (!choices.is_array() || choices.empty())
      place.fail("\"anyOf\" is not a list of schemas, one at least");
    std::vector<StateId> ways;
    for (std::size_t i = 0; i < choices.size(); ++i)
      ways.push_back(value(place.under("anyOf", i), values));
    return automaton_.fork(ways);
  }

  /// One of schemas that exclude each other. The property by which objects differ is written.
  StateId one_of(const SchemaPlace& place, Values values) {
    const Choices choices = exclusive_choices_of(place, document_);
    std::vector<StateId> ways;
    for (const SchemaPlace& choice : choices.places) {
      const Types types = types_of(choice);
      const bool object = types.count() == 1 && types[static_cast<std::size_t>(Type::kObject)];
      ways.push_back(later(choice, values, /*merged=*/false, object ? choices.tag : std::string()));
    }
    return automaton_.fork(ways);
  }

  /// All of these schemas at once: a single one, or plain objects, or plain strings.
  StateId all_of(const SchemaPlace& place, Values values) {
    const std::vector<SchemaPlace> parts = conjuncts_of(place, document_);
    if (parts.empty()) return any(values);
    if (parts.size() == 1 && parts[0].find("allOf") == nullptr)
      return later(parts[0], values, /*merged=*/false);
    const auto is_plain = [](const SchemaPlace& part, Type type) {
      const Types types = types_of(part);
      return types.count() == 1 && types[static_cast<std::size_t>(type)] &&
             part.find("anyOf") == nullptr && part.find("oneOf") == nullptr &&
             part.find("enum") == nullptr && part.find("const") == nullptr;
    };
    const Type type = is_plain(parts[0], Type::kString) ? Type::kString : Type::kObject;
    for (const SchemaPlace& part : parts)
      if (!is_plain(part, type))
        part.fail(
            "in \"allOf\" of several schemas this one is no plain object, as all must be, or "
            "string, as all may be");
    if (type == Type::kObject) return object(parts);
    return values == Values::kObjects ? Automaton::kDead : string(parts);
  }

  /// Adds a rule for objects that satisfy all of these, with `tag` required, too, unless it is
  /// empty.
  StateId object(std::span<const SchemaPlace> parts, const std::string& tag = {}) {
    std::vector<std::string> required;
    if (!tag.empty()) required.push_back(tag);
    std::vector<Member> members;
    std::map<std::string, const ordered_json*> schemas;  // of the members
    for (const SchemaPlace& part : parts) {
      for (const std::string& name : required_of(part))
        if (std::ranges::find(required, name) == required.end()) required.push_back(name);
      const ordered_json* properties = part.find("properties");
      if (properties == nullptr) continue;
      if (!properties->is_object()) part.fail("\"properties\" is not an object of schemas");
      check_properties(part, schemas.size() + properties->size());
      for (const auto& [name, schema] : properties->items()) {
        const auto [known, is_new] = schemas.try_emplace(name, &schema);
        if (!is_new && *known->second != schema)
          part.fail("\"allOf\" has two schemas of the property \"" + name + "\"");
        if (is_new)
          members.push_back({.key = name, .value = value(part.under("properties", name))});
      }
    }
    check_properties(parts[0], required.size());
    for (Member& member : members)
      member.required = std::ranges::find(required, member.key) != required.end();
    const Additional additional = additional_of(parts, members);
    for (const std::string& name : required) {
      if (schemas.contains(name)) continue;
      if (additional.required == Automaton::kDead)
        parts[0].fail("\"required\" names \"" + name +
                      "\", which neither \"properties\" nor \"additionalProperties\" allow");
      members.push_back({.key = name, .value = additional.required, .required = true});
    }
    check_properties(parts[0], members.size());
    return parts_.object(members, additional.others);
  }

  /// Values of properties that are not named: of those that are required, and of others.
  struct Additional {
    StateId required = Automaton::kDead, others = Automaton::kDead;
  };

  /// An object whose properties are named has no others unless it says so: what is written is
  /// a part of what the schema accepts, and the part that it is meant for.
  Additional additional_of(std::span<const SchemaPlace> parts, const std::vector<Member>& members) {
    bool named = false, open = false;
    Additional all{.required = any(), .others = any()};
    for (const SchemaPlace& part : parts) {
      const ordered_json* properties = part.find("properties");
      // Next to "allOf" it is about what all parts say.
      const bool whole = part.find("allOf") != nullptr;
      const ordered_json* unevaluated = part.find("unevaluatedProperties");
      const ordered_json* given = part.find("additionalProperties");
      if (given == nullptr && unevaluated != nullptr) {
        if (whole && *unevaluated == false) all = {};
        if (!whole) given = unevaluated;
      }
      named = named || properties != nullptr;
      if (given == nullptr) continue;
      if (*given == true) {
        open = true;
        continue;
      }
      if (parts.size() > 1) {
        if (*given != false)
          part.fail("\"additionalProperties\" with a schema in \"allOf\" is not supported");
        for (const Member& member : members)
          if (properties == nullptr || !properties->contains(member.key))
            part.fail("\"additionalProperties\" forbids \"" + member.key +
                      "\", which another schema of \"allOf\" names");
        all = {};
      } else {
        const StateId value = this->value(
            part.under(given == unevaluated ? "unevaluatedProperties" : "additionalProperties"));
        all = {.required = value, .others = value};
        open = true;
      }
    }
    if (named && !open) all.others = Automaton::kDead;
    return all;
  }

  static void check_properties(const SchemaPlace& place, std::size_t named) {
    if (named > kMostProperties)
      place.fail("an object has more than " + std::to_string(kMostProperties) +
                 " named properties");
  }

  StateId array(const SchemaPlace& place) {
    const std::uint32_t fewest = count_of(place, "minItems", 0);
    const std::uint32_t most = count_of(place, "maxItems", kUncounted);
    if (fewest > most) place.fail("\"minItems\" is more than \"maxItems\"");
    std::vector<StateId> first;
    const auto add_first = [&](const char* keyword) {
      const ordered_json& list = *place.find(keyword);
      if (!list.is_array()) place.fail(std::string("\"") + keyword + "\" is not a list of schemas");
      if (list.size() > kMostProperties)
        place.fail(std::string("\"") + keyword + "\" has more than " +
                   std::to_string(kMostProperties) + " schemas");
      for (std::size_t i = 0; i < list.size(); ++i) first.push_back(value(place.under(keyword, i)));
    };
    // Older schemas have the list in "items".
    const ordered_json* items = place.find("items");
    const bool older = items != nullptr && items->is_array();
    if (older) add_first("items");
    if (place.find("prefixItems") != nullptr) add_first("prefixItems");
    const char* const rest = older ? "additionalItems" : "items";
    const StateId item = place.find(rest) == nullptr ? any() : value(place.under(rest));
    return parts_.array(first, item, fewest, most);
  }

  /// Makes the rule of a string of which all of these hold.
  StateId string(std::span<const SchemaPlace> parts) {
    const SchemaPlace& whole = parts[0];
    StringRules rules;
    Lengths& lengths = rules.lengths;
    for (const SchemaPlace& part : parts) {
      lengths.shortest = std::max(lengths.shortest, count_of(part, "minLength", 0));
      lengths.longest = std::min(lengths.longest, count_of(part, "maxLength", kUncounted));
      if (const std::string pattern = pattern_of(part); !pattern.empty())
        rules.patterns.push_back(pattern);
      add_format_rule(part, rules.formats);
    }
    if (lengths.shortest > lengths.longest) whole.fail("\"minLength\" is more than \"maxLength\"");
    if (!rules.patterns.empty() || rules.formats.size() > 1) return matching_string(whole, rules);
    if (rules.formats.empty()) return parts_.string(lengths.shortest, lengths.longest);
    const StateId made = *add_format(automaton_, rules.formats[0], lengths);
    if (made == Automaton::kDead)
      whole.fail("\"minLength\" or \"maxLength\" leaves out strings of the format \"" +
                 rules.formats[0] + "\" that may be written here: leave it out");
    return made;
  }

  /// Adds the format of a string, if it says something. Next to a pattern, names that are none of
  /// JSON Schema's say nothing more: compilers of schemas write them so.
  static void add_format_rule(const SchemaPlace& place, std::vector<std::string>& formats) {
    const std::string format = format_of(place);
    if (format.empty() || is_free_format(format)) return;
    if (is_known_format(format))
      formats.push_back(format);
    else if (pattern_of(place).empty() || is_standard_format(format))
      fail_by_format(place, format);
  }

  /// Makes the rule of strings with regular expressions, one for equal ones.
  StateId matching_string(const SchemaPlace& place, const StringRules& rules) {
    const auto [entry, is_new] = matching_.try_emplace(rules, Automaton::kDead);
    try {
      if (is_new)
        entry->second = add_strings(automaton_, rules, parts_.rest_of_string(), pattern_work_);
    } catch (const Error& error) {
      place.fail(std::string("the keyword \"pattern\": ") + error.what());
    }
    if (entry->second == Automaton::kDead)
      place.fail(
          "no string that may be written here satisfies \"pattern\", \"format\" and the "
          "lengths");
    return entry->second;
  }

  StateId number(const SchemaPlace& place, Numbers numbers) {
    const StateId state = add_numerals(automaton_, numbers, range_of(place));
    if (state == Automaton::kDead)
      place.fail("no number of at most " + std::to_string(kMostDigits) +
                 " digits before the point and after it lies between \"minimum\" and "
                 "\"maximum\"");
    return state;
  }

  /// Throws Error naming the schema, if a text cannot be read or is satisfied by none.
  void check(StateId start) const {
    const auto loop = find_empty_loop(automaton_);
    if (!loop.empty())
      SchemaPlace{.pointer = name_of(loop)}.fail(
          "\"$ref\" leads back to the same schema without an object or array between");
    const auto all_heights = heights(automaton_, ByteSet().set());
    if (all_heights[start] != kNever) return;
    const auto never = std::ranges::find_if(
        made_, [&](const auto& made) { return all_heights[made.first] == kNever; });
    SchemaPlace{.pointer = never->second}.fail(
        "no text of at most " + std::to_string(kMostLevels) +
        " levels of objects and arrays satisfies the schema" +
        (values_ == Values::kObjects ? ", and is an object" : ""));
  }

  /// The reference that a loop goes through: nothing else leads back.
  std::string name_of(const std::vector<StateId>& loop) const {
    for (const auto& [key, state] : later_)
      if (std::ranges::find(loop, state) != loop.end()) return std::get<0>(key);
    return "#";
  }

  const std::vector<ordered_json> kBooleans{true, false};
  const std::vector<ordered_json> kNull{nullptr};

  const ordered_json& document_;
  const Values values_;
  Automaton automaton_;
  JsonParts parts_;
  StateId any_ = Automaton::kDead;
  std::map<StringRules, StateId> matching_;
  PatternWork pattern_work_;
  std::map<std::tuple<std::string, Values, bool, std::string>, StateId> later_;  // by their schema
  std::deque<Pending> pending_;
  std::vector<std::pair<StateId, std::string>> made_;  // inner schemas before outer ones
};

/// Bounds the recursion of all that reads the schema.
bool deeper_than(const ordered_json& value, int levels) {
  if (!value.is_structured()) return false;
  if (levels == 0) return true;
  return std::ranges::any_of(
      value, [&](const ordered_json& item) { return deeper_than(item, levels - 1); });
}

}  // namespace

Grammar json_grammar(const ordered_json& schema, Values values) {
  if (deeper_than(schema, kMostSchemaLevels))
    throw Error("the JSON schema has more than " + std::to_string(kMostSchemaLevels) +
                " levels of objects and lists");
  return SchemaCompiler(schema, values).compile();
}

bool accepts_any_object(const ordered_json& schema) {
  if (schema.is_boolean()) return schema.get<bool>();
  const SchemaPlace place{.schema = &schema};
  return schema.is_object() && !says_more_than(place, "type") &&
         types_of(place)[static_cast<std::size_t>(Type::kObject)];
}

}  // namespace canopy::grammar
