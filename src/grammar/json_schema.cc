#include "src/grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/json_parts.h"
#include "src/grammar/limits.h"
#include "src/grammar/numeral.h"
#include "src/grammar/schema_reader.h"

namespace canopy::grammar {
namespace {

using nlohmann::ordered_json;

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const ordered_json& document) : document_(document), parts_(automaton_) {}

  Grammar compile() {
    const StateId start = value({.schema = &document_, .pointer = "#"});
    // What references point to may point on; a queue, as they may be many.
    while (!pending_.empty()) {
      const auto [place, state] = std::move(pending_.front());
      pending_.pop_front();
      automaton_.become(state, value(place));
    }
    check(start);
    return {std::move(automaton_), start};
  }

 private:
  StateId value(const SchemaPlace& place) {
    const StateId state = compiled(place);
    made_.emplace_back(state, place.pointer);
    return state;
  }

  StateId compiled(const SchemaPlace& place) {
    if (place.schema->is_boolean()) return place.schema->get<bool>() ? any() : Automaton::kDead;
    check_keywords(place);
    if (place.find("$ref") != nullptr) return reference(place);
    if (place.find("anyOf") != nullptr) return any_of(place);
    if (const auto values = values_of(place)) return parts_.one_of(*values);
    const Types types = types_of(place);
    const auto has = [&](Type type) { return types[static_cast<std::size_t>(type)]; };
    if (types.all() && place.find("type") == nullptr) return any();
    std::vector<StateId> ways;
    if (has(Type::kObject)) ways.push_back(object(place));
    if (has(Type::kArray)) ways.push_back(array(place));
    if (has(Type::kString)) ways.push_back(string(place));
    if (has(Type::kNumber))
      ways.push_back(number(place, Numbers::kAll));
    else if (has(Type::kInteger))
      ways.push_back(number(place, Numbers::kWhole));
    if (has(Type::kBoolean)) ways.push_back(parts_.one_of(kBooleans));
    if (has(Type::kNull)) ways.push_back(parts_.one_of(kNull));
    return automaton_.fork(ways);
  }

  StateId any() {
    if (any_ != Automaton::kDead) return any_;
    any_ = automaton_.reserve();
    automaton_.become(any_,
                      automaton_.fork(std::vector{
                          parts_.object({}, any_), parts_.array(any_, 0, kUncounted),
                          parts_.string(0, kUncounted), add_numerals(automaton_, Numbers::kAll, {}),
                          parts_.one_of(kBooleans), parts_.one_of(kNull)}));
    return any_;
  }

  StateId reference(const SchemaPlace& place) {
    const SchemaPlace target = resolve(place, document_);
    const auto [entry, is_new] = references_.try_emplace(target.pointer, Automaton::kDead);
    if (is_new) {
      if (references_.size() > kMostReferences)
        place.fail("the schema has more than " + std::to_string(kMostReferences) +
                   " different targets of \"$ref\"");
      entry->second = automaton_.reserve();
      pending_.emplace_back(target, entry->second);
    }
    return entry->second;
  }

  StateId any_of(const SchemaPlace& place) {
    const ordered_json& choices = *place.find("anyOf");
    if (!choices.is_array() || choices.empty())
      place.fail("\"anyOf\" is not a list of schemas, one at least");
    std::vector<StateId> ways;
    for (std::size_t i = 0; i < choices.size(); ++i) ways.push_back(value(place.under("anyOf", i)));
    return automaton_.fork(ways);
  }

  StateId object(const SchemaPlace& place) {
    const std::vector<std::string> required = required_of(place);
    check_properties(place, required.size());
    const auto is_required = [&](const std::string& name) {
      return std::ranges::find(required, name) != required.end();
    };
    std::vector<Member> members;
    if (const ordered_json* properties = place.find("properties")) {
      if (!properties->is_object()) place.fail("\"properties\" is not an object of schemas");
      check_properties(place, properties->size());
      for (const auto& [name, schema] : properties->items())
        members.push_back({.key = name,
                           .value = value(place.under("properties", name)),
                           .required = is_required(name)});
    }
    const StateId additional = place.find("additionalProperties") == nullptr
                                   ? any()
                                   : value(place.under("additionalProperties"));
    for (const std::string& name : required) {
      if (std::ranges::find(members, name, &Member::key) != members.end()) continue;
      if (additional == Automaton::kDead)
        place.fail("\"required\" names \"" + name +
                   "\", which neither \"properties\" nor \"additionalProperties\" allow");
      members.push_back({.key = name, .value = additional, .required = true});
    }
    check_properties(place, members.size());
    return parts_.object(members, additional);
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
    const StateId item = place.find("items") == nullptr ? any() : value(place.under("items"));
    return parts_.array(item, fewest, most);
  }

  StateId string(const SchemaPlace& place) {
    const std::uint32_t shortest = count_of(place, "minLength", 0);
    const std::uint32_t longest = count_of(place, "maxLength", kUncounted);
    if (shortest > longest) place.fail("\"minLength\" is more than \"maxLength\"");
    return parts_.string(shortest, longest);
  }

  StateId number(const SchemaPlace& place, Numbers numbers) {
    const StateId state = add_numerals(automaton_, numbers, range_of(place));
    if (state == Automaton::kDead)
      place.fail("no number of at most " + std::to_string(kMostDigits) +
                 " digits before the point and behind it lies between \"minimum\" and "
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
        " levels of objects and arrays satisfies the schema");
  }

  /// The reference that a loop goes through: nothing else leads back.
  std::string name_of(const std::vector<StateId>& loop) const {
    for (const auto& [pointer, state] : references_)
      if (std::ranges::find(loop, state) != loop.end()) return pointer;
    return "#";
  }

  const std::vector<ordered_json> kBooleans{true, false};
  const std::vector<ordered_json> kNull{nullptr};

  const ordered_json& document_;
  Automaton automaton_;
  JsonParts parts_;
  StateId any_ = Automaton::kDead;
  std::map<std::string, StateId> references_;  // by what they point to
  std::deque<std::pair<SchemaPlace, StateId>> pending_;
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

Grammar json_grammar(const ordered_json& schema) {
  if (deeper_than(schema, kMostSchemaLevels))
    throw Error("the JSON schema has more than " + std::to_string(kMostSchemaLevels) +
                " levels of objects and lists");
  return SchemaCompiler(schema).compile();
}

}  // namespace canopy::grammar
