#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "src/grammar/automaton.h"

namespace canopy::grammar {

struct Member {
  std::string key;
  StateId value = Automaton::kDead;
  bool required = false;
};

/// The pieces of JSON text that values of every schema are made of.
class JsonParts {
 public:
  explicit JsonParts(Automaton& automaton);

  /// Add rules. Members come in this order; after them further ones, with other keys, unless
  /// `additional` is kDead.
  StateId object(std::span<const Member> members, StateId additional);
  /// `first` for the items at the start, one each, then `item` for each of the others.
  StateId array(std::span<const StateId> first, StateId item, std::uint32_t fewest,
                std::uint32_t most);
  StateId string(std::uint32_t shortest, std::uint32_t longest);
  /// Returns the state before the inside of any string and its closing quote.
  StateId rest_of_string() const { return text_; }
  StateId one_of(std::span<const nlohmann::ordered_json> values);

 private:
  StateId spaced(StateId to);
  StateId behind_colon(StateId to);
  StateId key_but(std::span<const Member> members);
  StateId value(const nlohmann::ordered_json& value, StateId to);

  Automaton& automaton_;
  StateId space_, text_, key_;
  std::map<StateId, StateId> spaced_;  // by what follows
};

/// A string, number, boolean or null as it is written in JSON. Throws Error if a string is not
/// UTF-8.
std::string spell_scalar(const nlohmann::ordered_json& value);

}  // namespace canopy::grammar
