#include "src/grammar/schema/json_parts.h"

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/grammar/limits.h"
#include "src/grammar/text_automaton.h"
#include "src/grammar/words.h"

namespace canopy::grammar {

using nlohmann::ordered_json;

JsonParts::JsonParts(Automaton& automaton)
    : automaton_(automaton),
      text_(add_text(automaton, Text::kFree)),
      key_(add_text(automaton, Text::kKey)) {
  const StateId indent = automaton.reserve();
  automaton.become(indent,
                   automaton.fork(Automaton::kReturn, automaton.byte(' ', indent, Count::kTake)));
  space_ = automaton.enter(
      automaton.fork(automaton.byte(' ', Automaton::kReturn), automaton.byte('\n', indent)), 0,
      kMostIndent);
}

/// White space or none, then `to`.
StateId JsonParts::spaced(StateId to) {
  if (to == Automaton::kDead) return to;
  const auto [entry, is_new] = spaced_.try_emplace(to, Automaton::kDead);
  if (is_new) entry->second = automaton_.fork(to, automaton_.call(space_, to));
  return entry->second;
}

StateId JsonParts::behind_colon(StateId to) {
  return automaton_.fork(to, automaton_.byte(' ', to));
}

/// The rule of a key with its quotes that is not one of these.
StateId JsonParts::key_but(std::span<const Member> members) {
  std::vector<std::string> keys;
  for (const Member& member : members) keys.push_back(member.key);
  return automaton_.byte('"', add_other_keys(automaton_, keys, key_));
}

StateId JsonParts::object(std::span<const Member> members, StateId additional) {
  const StateId close = automaton_.byte('}', Automaton::kReturn);
  // Goes from the last to the first: `next` is one of those that are left, `end` where all may be
  // absent.
  StateId next = Automaton::kDead, end = close;
  const auto behind_value = [&](StateId following, StateId ending) {
    return automaton_.fork(automaton_.byte(',', spaced(following)), spaced(ending));
  };
  if (additional != Automaton::kDead) {
    next = automaton_.reserve();
    const StateId value = automaton_.call(additional, behind_value(next, close));
    automaton_.become(next,
                      automaton_.call(key_but(members), automaton_.byte(':', behind_colon(value))));
  }
  for (std::size_t i = members.size(); i-- > 0;) {
    const Member& member = members[i];
    const StateId value = automaton_.call(member.value, behind_value(next, end));
    const StateId written = automaton_.spell(spell_scalar(member.key) + ":", behind_colon(value));
    next = member.required ? written : automaton_.fork(written, next);
    if (member.required) end = Automaton::kDead;
  }
  const StateId inside = automaton_.fork(next, end);
  return automaton_.enter(automaton_.byte('{', spaced(inside)), 0, kUncounted, Levels::kDeeper);
}

StateId JsonParts::array(std::span<const StateId> first, StateId item, std::uint32_t fewest,
                         std::uint32_t most) {
  const StateId close = automaton_.byte(']', Automaton::kReturn);
  first = first.first(std::min<std::size_t>(first.size(), most));
  const auto known = static_cast<std::uint32_t>(first.size());
  if (item == Automaton::kDead) most = std::min(most, known);
  if (fewest > most) return Automaton::kDead;
  // Items after `first`, of which the one that no comma stands before is not counted.
  StateId some = Automaton::kDead, after = spaced(close);
  std::uint32_t need = fewest > known ? fewest - known : 0;
  std::uint32_t left = most == kUncounted ? most : most - known;
  if (left > 0) {
    const StateId behind_item = automaton_.reserve();
    some = automaton_.call(item, behind_item);
    const StateId further = automaton_.byte(',', spaced(some), Count::kTake);
    automaton_.become(behind_item, automaton_.fork(further, automaton_.gate(spaced(close))));
    after = automaton_.fork(further, need > 0 ? Automaton::kDead : spaced(close));
  }
  if (known == 0) {
    if (need > 0) --need;
    if (left > 0 && left != kUncounted) --left;
    const StateId inside = automaton_.fork(some, fewest == 0 ? close : Automaton::kDead);
    return automaton_.enter(automaton_.byte('[', spaced(inside)), need, left, Levels::kDeeper);
  }
  // Goes from the last to the first: `after` is what follows the item.
  StateId inside = Automaton::kDead;
  for (std::uint32_t i = known; i-- > 0;) {
    const StateId end = i + 1 == known ? after : spaced(close);
    const StateId more =
        inside == Automaton::kDead ? Automaton::kDead : automaton_.byte(',', spaced(inside));
    const bool may_end = i + 1 >= fewest || i + 1 == known;
    inside = automaton_.call(first[i], automaton_.fork(more, may_end ? end : Automaton::kDead));
  }
  inside = automaton_.fork(inside, fewest == 0 ? close : Automaton::kDead);
  return automaton_.enter(automaton_.byte('[', spaced(inside)), need, left, Levels::kDeeper);
}

StateId JsonParts::string(std::uint32_t shortest, std::uint32_t longest) {
  return automaton_.enter(automaton_.byte('"', text_), shortest, longest);
}

/// This value, then `to`.
StateId JsonParts::value(const ordered_json& value, StateId to) {
  if (!value.is_structured()) return automaton_.spell(spell_scalar(value), to);
  const bool object = value.is_object();
  StateId next = spaced(automaton_.byte(object ? '}' : ']', to));
  bool last = true;
  for (auto item = value.rbegin(); item != value.rend(); ++item) {
    if (!last) next = automaton_.byte(',', spaced(next));
    last = false;
    next = this->value(*item, next);
    if (!object) continue;
    // A reverse iterator has no key of its own.
    const std::string& key = std::prev(item.base()).key();
    next = automaton_.spell(spell_scalar(key) + ":", behind_colon(next));
  }
  return automaton_.byte(object ? '{' : '[', value.empty() ? next : spaced(next));
}

StateId JsonParts::one_of(std::span<const ordered_json> values) {
  std::vector<std::string> scalars;
  std::vector<StateId> ways;
  for (const ordered_json& each : values) {
    if (each.is_structured())
      ways.push_back(value(each, Automaton::kReturn));
    else
      scalars.push_back(spell_scalar(each));
  }
  if (!scalars.empty()) ways.push_back(add_words(automaton_, scalars, Automaton::kReturn));
  return automaton_.fork(ways);
}

std::string spell_scalar(const ordered_json& value) {
  if (auto digits = large_integer(value)) return *digits;
  try {
    return value.dump();
  } catch (const ordered_json::exception&) {
    throw Error("a text in the schema is not UTF-8");
  }
}

}  // namespace canopy::grammar
