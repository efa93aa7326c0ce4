#include "src/grammar/pattern/pattern.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/limits.h"
#include "src/grammar/machine.h"
#include "src/grammar/pattern/language.h"
#include "src/grammar/pattern/spelling.h"

namespace canopy::grammar {
namespace {

/// Reads the strings of a format, between its quotes.
class FormatReader {
 public:
  struct Place {
    Stack stack;
    Readings readings;
  };

  FormatReader(Automaton automaton, StateId rule)
      : machine_(std::make_shared<const Grammar>(std::move(automaton), rule), ByteSet().set()) {}

  Place start() {
    Place place;
    machine_.begin(place.stack, place.readings);
    return step(std::move(place), '"');
  }
  Place step(Place from, char byte) {
    Place to{.stack = std::move(from.stack), .readings = {}};
    machine_.step(from.readings, static_cast<std::uint8_t>(byte), to.stack, to.readings);
    compact(to.stack, to.readings);
    return to;
  }

 private:
  Machine machine_;
};

/// A step of a reader takes as long as so many of an expression.
constexpr std::size_t kWorkOfAStep = 4;

/// Finds all states that texts of a language lead to, in formats' readers too.
class Explorer {
 public:
  Explorer(Language& language, std::vector<FormatReader> readers, PatternWork& work)
      : language_(language), readers_(std::move(readers)), work_(work) {}

  std::vector<TextState> explore() {
    At start{.expression = language_.start(), .places = {}};
    for (FormatReader& reader : readers_) start.places.push_back(reader.start());
    index(std::move(start));
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      const At at = reached_[i];  // a copy: more are added
      TextState state;
      state.everything = readers_.empty() && at.expression == language_.expressions().everything();
      state.ends = language_.expressions().has_empty(at.expression);
      for (std::size_t reader = 0; reader < readers_.size(); ++reader)
        state.ends = state.ends && readers_[reader].step(at.places[reader], '"').readings.complete;
      if (!state.everything) follow(at, state.steps);
      states_.push_back(std::move(state));
    }
    return std::move(states_);
  }

 private:
  struct At {
    ExpressionId expression = 0;
    std::vector<FormatReader::Place> places;
  };

  void follow(const At& at, std::vector<TextStep>& steps) {
    Expressions& expressions = language_.expressions();
    const auto add = [&](CodeRange range, std::size_t to) {
      if (!steps.empty() && steps.back().to == to && steps.back().range.last + 1 == range.first)
        steps.back().range.last = range.last;
      else
        steps.push_back({.range = range, .to = to});
    };
    for (const ClassRange& each : language_.ranges()) {
      const ExpressionId next = expressions.after(at.expression, each.character_class);
      if (next == expressions.nothing()) continue;
      if (readers_.empty()) {
        add(each.range, index({.expression = next, .places = {}}));
        continue;
      }
      // Formats are of ASCII without escapes.
      for (char32_t c = std::max<char32_t>(each.range.first, ' ');
           c <= std::min<char32_t>(each.range.last, '~'); ++c) {
        if (c == '"' || c == '\\') continue;
        work_.add(kWorkOfAStep * readers_.size());
        At to{.expression = next, .places = {}};
        for (std::size_t i = 0; i < readers_.size(); ++i)
          to.places.push_back(readers_[i].step(at.places[i], static_cast<char>(c)));
        if (std::ranges::none_of(to.places, [](const auto& p) { return p.readings.none(); }))
          add({c, c}, index(std::move(to)));
      }
    }
  }

  std::size_t index(At at) {
    std::string key(reinterpret_cast<const char*>(&at.expression), sizeof(at.expression));
    for (const FormatReader::Place& place : at.places)
      key += key_of(place.readings, place.stack, kUncounted);
    const auto [entry, is_new] = indices_.try_emplace(std::move(key), reached_.size());
    if (!is_new) return entry->second;
    if (reached_.size() == kMostPatternStates)
      throw Error("the pattern, with its format and lengths, needs more than " +
                  std::to_string(kMostPatternStates) + " states: a simpler one is needed");
    reached_.push_back(std::move(at));
    return entry->second;
  }

  Language& language_;
  std::vector<FormatReader> readers_;
  PatternWork& work_;
  std::map<std::string, std::size_t> indices_;
  std::vector<At> reached_;
  std::vector<TextState> states_;
};

}  // namespace

StateId add_strings(Automaton& automaton, const StringRules& rules, StateId any,
                    PatternWork& work) {
  std::vector<FormatReader> readers;
  Lengths lengths = rules.lengths;
  for (const std::string& format : rules.formats) {
    Automaton apart;
    const OpenFormat open = *add_open_format(apart, format);
    lengths.longest = std::min(lengths.longest, open.longest);
    readers.emplace_back(std::move(apart), open.rule);
  }
  if (lengths.shortest > lengths.longest) return Automaton::kDead;
  Language language(rules.patterns, lengths, work);
  const std::vector<TextState> states = Explorer(language, std::move(readers), work).explore();
  return automaton.enter(automaton.byte('"', add_spelled(automaton, states, any)), 0, kUncounted);
}

}  // namespace canopy::grammar
