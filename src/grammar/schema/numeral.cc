#include "src/grammar/schema/numeral.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "src/grammar/limits.h"

namespace canopy::grammar {
namespace {

/// Bounds that the digits so far agree with, the least number and the greatest: then the next digit
/// decides. Else they are within.
struct Tight {
  bool least = false, most = false;
  auto operator<=>(const Tight&) const = default;
};

/// Numbers without a sign in [least, most], as an automaton that compares digit by digit.
class Magnitudes {
 public:
  /// `most` may be open. `end`: what follows the last digit.
  Magnitudes(Automaton& automaton, Numbers numbers, Bound least, std::optional<Bound> most,
             StateId end)
      : automaton_(automaton),
        numbers_(numbers),
        least_(std::move(least)),
        most_(std::move(most)),
        end_(end) {
    // No number that may be written has that many digits.
    if (most_ && most_->value.whole.size() > kMostDigits) most_.reset();
  }

  StateId start() {
    const int shortest = static_cast<int>(least_.value.whole.size());
    const int longest = most_ ? static_cast<int>(most_->value.whole.size()) : kMostDigits;
    if (shortest > longest) return Automaton::kDead;
    const bool longest_is_tight = most_.has_value();
    std::vector<StateId> ways{
        whole(shortest, 0, {.least = true, .most = longest_is_tight && shortest == longest})};
    const int last_free = longest_is_tight ? longest - 1 : longest;
    if (last_free > shortest)
      ways.push_back(automaton_.range('1', '9', some_digits(shortest, last_free - 1)));
    if (longest_is_tight && longest > shortest)
      ways.push_back(whole(longest, 0, {.least = false, .most = true}));
    return automaton_.fork(ways);
  }

 private:
  /// Edges by digits, from `to(digit, tight)`. `place`: that digit of each bound.
  template <class To>
  StateId digits(Tight tight, char least, char most, char first, To&& to) {
    std::vector<Edge> edges;
    for (char digit = first; digit <= '9'; ++digit) {
      if (tight.least && digit < least) continue;
      if (tight.most && digit > most) continue;
      const StateId state =
          to(Tight{.least = tight.least && digit == least, .most = tight.most && digit == most});
      const auto byte = static_cast<std::uint8_t>(digit);
      if (!edges.empty() && edges.back().to == state)
        edges.back().last = byte;
      else
        edges.push_back({byte, byte, Count::kNone, state});
    }
    return automaton_.bytes(edges);
  }

  static char digit_at(const std::string& digits, int place) {
    const auto i = static_cast<std::size_t>(place);
    return i < digits.size() ? digits[i] : '0';
  }
  char least_fraction(int place) const { return digit_at(least_.value.fraction, place); }
  char most_fraction(int place) const {
    return most_ ? digit_at(most_->value.fraction, place) : '9';
  }

  /// True if a number may end after `place` digits of its fraction.
  bool may_end(int place, Tight tight) const {
    const auto read = static_cast<std::size_t>(place);
    if (tight.least && (least_.value.fraction.size() > read || !least_.included)) return false;
    const bool equals_most = tight.most && most_->value.fraction.size() <= read;
    return !equals_most || most_->included;
  }

  /// The rest of a number with exactly `length` digits before its point, of which `place` are read.
  StateId whole(int length, int place, Tight tight) {
    if (place == length) return behind_whole(tight);
    const auto key = std::tuple(length, place, tight);
    if (const auto found = whole_.find(key); found != whole_.end()) return found->second;
    const char first = place == 0 && length > 1 ? '1' : '0';
    const StateId state = digits(tight, digit_at(least_.value.whole, place),
                                 most_ ? digit_at(most_->value.whole, place) : '9', first,
                                 [&](Tight next) { return whole(length, place + 1, next); });
    return whole_[key] = state;
  }

  /// Takes `fewest` to `most` more digits before the point, whatever they are.
  StateId some_digits(int fewest, int most) {
    StateId state = Automaton::kDead;
    for (int more = 0; more <= most; ++more) {
      const StateId next = more == 0 ? Automaton::kDead : automaton_.range('0', '9', state);
      const StateId behind = most - more >= fewest ? behind_whole({}) : Automaton::kDead;
      state = automaton_.fork(behind, next);
    }
    return state;
  }

  StateId behind_whole(Tight tight) {
    if (const auto found = behind_whole_.find(tight); found != behind_whole_.end())
      return found->second;
    const StateId end = may_end(0, tight) ? end_ : Automaton::kDead;
    const StateId point =
        numbers_ == Numbers::kAll ? automaton_.byte('.', fraction(0, tight)) : Automaton::kDead;
    return behind_whole_[tight] = automaton_.fork(end, point);
  }

  /// One more digit of the fraction, of which `place` are read.
  StateId fraction(int place, Tight tight) {
    if (place == kMostDigits) return Automaton::kDead;
    const auto key = std::pair(place, tight);
    if (const auto found = fraction_.find(key); found != fraction_.end()) return found->second;
    const StateId state =
        digits(tight, least_fraction(place), most_fraction(place), '0', [&](Tight next) {
          return automaton_.fork(may_end(place + 1, next) ? end_ : Automaton::kDead,
                                 fraction(place + 1, next));
        });
    return fraction_[key] = state;
  }

  Automaton& automaton_;
  Numbers numbers_;
  Bound least_;
  std::optional<Bound> most_;
  StateId end_;
  std::map<std::tuple<int, int, Tight>, StateId> whole_;
  std::map<Tight, StateId> behind_whole_;
  std::map<std::pair<int, Tight>, StateId> fraction_;
};

StateId exponent(Automaton& automaton) {
  const StateId last = automaton.range('0', '9', Automaton::kReturn);
  const StateId digits = automaton.range('0', '9', automaton.fork(Automaton::kReturn, last));
  const StateId sign =
      automaton.fork(digits, automaton.bytes(std::array{Edge{'+', '+', Count::kNone, digits},
                                                        Edge{'-', '-', Count::kNone, digits}}));
  return automaton.bytes(
      std::array{Edge{'E', 'E', Count::kNone, sign}, Edge{'e', 'e', Count::kNone, sign}});
}

std::optional<Bound> negated(std::optional<Bound> bound) {
  if (bound) bound->value.negative = !bound->value.negative;
  return bound;
}

}  // namespace

StateId add_numerals(Automaton& automaton, Numbers numbers, const Range& range) {
  if (range.empty()) return Automaton::kDead;
  const bool open = !range.least && !range.most;
  const StateId end = open && numbers == Numbers::kAll
                          ? automaton.fork(Automaton::kReturn, exponent(automaton))
                          : Automaton::kReturn;
  const Decimal zero;
  std::vector<StateId> ways;
  if (!range.most || range.most->value >= zero) {
    const bool above = range.least && range.least->value >= zero;
    ways.push_back(
        Magnitudes(automaton, numbers, above ? *range.least : Bound{}, range.most, end).start());
  }
  if (!range.least || range.least->value < zero) {
    // Zero has no sign here.
    const bool below = range.most && range.most->value < zero;
    const Bound least = below ? *negated(range.most) : Bound{.value = {}, .included = false};
    ways.push_back(automaton.byte(
        '-', Magnitudes(automaton, numbers, least, negated(range.least), end).start()));
  }
  return automaton.fork(ways);
}

}  // namespace canopy::grammar
