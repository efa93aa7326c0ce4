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

/// A number of a place in the strings of a format.
using Place = std::uint32_t;

/// Reads the strings of a format, between its quotes; each step is taken once.
class FormatReader {
 public:
  static constexpr Place kNowhere = 0;

  FormatReader(Automaton automaton, StateId rule)
      : machine_(std::make_shared<const Grammar>(std::move(automaton), rule), ByteSet().set()),
        places_(1) {}

  Place start() {
    Reached text;
    machine_.begin(text.stack, text.readings);
    return number(step(std::move(text), '"'));
  }
  Place after(Place place, char32_t c, PatternWork& work) {
    const auto [entry, is_new] = after_.try_emplace({place, c}, kNowhere);
    if (is_new) {
      work.add(kWorkOfAStep);
      entry->second = number(step(places_[place], static_cast<char>(c)));
    }
    return entry->second;
  }
  bool ends(Place place) { return step(places_[place], '"').readings.complete; }

 private:
  struct Reached {
    Stack stack;
    Readings readings;
  };
  /// As many steps of an expression take as long, and as much memory.
  static constexpr std::size_t kWorkOfAStep = 10;

  Reached step(Reached from, char byte) {
    Reached to{.stack = std::move(from.stack), .readings = {}};
    machine_.step(from.readings, static_cast<std::uint8_t>(byte), to.stack, to.readings);
    compact(to.stack, to.readings);
    return to;
  }
  Place number(Reached text) {
    if (text.readings.none()) return kNowhere;
    const auto [entry, is_new] = numbers_.try_emplace(key_of(text.readings, text.stack, kUncounted),
                                                      static_cast<Place>(places_.size()));
    if (is_new) places_.push_back(std::move(text));
    return entry->second;
  }

  Machine machine_;
  std::vector<Reached> places_;
  std::map<std::string, Place> numbers_;
  std::map<std::pair<Place, char32_t>, Place> after_;
};

/// Finds all states that texts of a language lead to, in formats' readers too.
class Explorer {
 public:
  Explorer(Language& language, std::vector<FormatReader> readers, PatternWork& work)
      : language_(language), readers_(std::move(readers)), work_(work) {}

  std::vector<TextState> explore() {
    At start{language_.start()};
    for (FormatReader& reader : readers_) start.push_back(reader.start());
    index(start);
    for (std::size_t i = 0; i < reached_.size(); ++i) {
      const At at = reached_[i];  // a copy: more are added
      TextState state;
      state.everything = readers_.empty() && at[0] == language_.expressions().everything();
      state.ends = language_.expressions().has_empty(at[0]);
      for (std::size_t reader = 0; reader < readers_.size(); ++reader)
        state.ends = state.ends && readers_[reader].ends(at[reader + 1]);
      if (!state.everything) follow(at, state.steps);
      states_.push_back(std::move(state));
    }
    return std::move(states_);
  }

 private:
  /// An expression, and a place of each reader.
  using At = std::vector<std::uint32_t>;

  void follow(const At& at, std::vector<TextStep>& steps) {
    Expressions& expressions = language_.expressions();
    const auto add = [&](CodeRange range, std::size_t to) {
      if (!steps.empty() && steps.back().to == to && steps.back().range.last + 1 == range.first)
        steps.back().range.last = range.last;
      else
        steps.push_back({.range = range, .to = to});
    };
    At to = at;
    for (const ClassRange& each : language_.ranges()) {
      to[0] = expressions.after(at[0], each.character_class);
      if (to[0] == expressions.nothing()) continue;
      if (readers_.empty()) {
        add(each.range, index(to));
        continue;
      }
      // Formats are of ASCII without escapes.
      for (char32_t c = std::max<char32_t>(each.range.first, ' ');
           c <= std::min<char32_t>(each.range.last, '~'); ++c) {
        if (c == '"' || c == '\\') continue;
        work_.add(1);
        for (std::size_t i = 0; i < readers_.size(); ++i)
          to[i + 1] = readers_[i].after(at[i + 1], c, work_);
        if (std::find(to.begin() + 1, to.end(), FormatReader::kNowhere) == to.end())
          add({c, c}, index(to));
      }
    }
  }

  std::size_t index(const At& at) {
    const auto [entry, is_new] = indices_.try_emplace(at, reached_.size());
    if (!is_new) return entry->second;
    if (reached_.size() == kMostPatternStates)
      throw Error("the pattern, with its format and lengths, needs more than " +
                  std::to_string(kMostPatternStates) + " states: a simpler one is needed");
    reached_.push_back(at);
    return entry->second;
  }

  Language& language_;
  std::vector<FormatReader> readers_;
  PatternWork& work_;
  std::map<At, std::size_t> indices_;
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
