#include "src/grammar/schema/formats.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace canopy::grammar {
namespace {

constexpr std::string_view kLetters = "AZaz", kAlnum = "09AZaz", kHex = "09AFaf";

/// Spells the formats from their ends: each function returns the state that begins its part.
class Formats {
 public:
  explicit Formats(Automaton& automaton) : automaton_(automaton) {}

  StateId date(StateId to) {
    // The greatest day decides: leap years have a February of their own.
    const StateId leap = months(29, to), common = months(28, to);
    const auto years_of = [&](bool leap_century) {
      return by_digit(0, 9, [&](int tens) {
        return by_digit(0, 9, [&](int units) {
          const int year = 10 * tens + units;
          return (year == 0 ? leap_century : year % 4 == 0) ? leap : common;
        });
      });
    };
    const StateId after_leap = years_of(true), after_common = years_of(false);
    return by_digit(1, 9, [&](int tens) {
      return by_digit(0, 9, [&](int units) {
        return (10 * tens + units) % 4 == 0 ? after_leap : after_common;
      });
    });
  }

  StateId time(StateId to) {
    const StateId ahead = automaton_.spell(":", sixty(to));
    const std::array<Edge, 3> zones{Edge{'+', '+', Count::kNone, hour(ahead)},
                                    Edge{'-', '-', Count::kNone, hour(ahead)},
                                    Edge{'Z', 'Z', Count::kNone, to}};
    const StateId zone = automaton_.bytes(zones);
    const StateId fraction = automaton_.fork(automaton_.byte('.', digits(6, zone)), zone);
    return hour(automaton_.byte(':', sixty(automaton_.byte(':', sixty(fraction)))));
  }

  StateId date_time(StateId to) { return date(automaton_.byte('T', time(to))); }

  StateId duration(StateId to) {
    const auto count = [&](char unit, StateId next) {
      return digits(4, automaton_.byte(unit, next));
    };
    const StateId seconds = count('S', to);
    const StateId minutes = count('M', automaton_.fork(to, seconds));
    const StateId hours = count('H', automaton_.fork(to, minutes));
    const StateId clock =
        automaton_.byte('T', automaton_.fork(std::vector{hours, minutes, seconds}));
    const StateId days = count('D', automaton_.fork(to, clock));
    return automaton_.byte('P', automaton_.fork(std::vector{days, clock, count('W', to)}));
  }

  /// Versions 1 to 8, of the variant that these have.
  StateId uuid(StateId to, std::string_view version) {
    StateId next = automaton_.byte('-', hex(12, to));
    next = automaton_.byte('-', one_of("89ABab", hex(3, next)));
    next = automaton_.byte('-', one_of(version, hex(3, next)));
    return hex(8, automaton_.byte('-', hex(4, next)));
  }

  StateId ipv4(StateId to) {
    for (int i = 0; i < 4; ++i) {
      if (i > 0) to = automaton_.byte('.', to);
      const StateId digit = automaton_.range('0', '9', to);
      const std::array ways{automaton_.range('0', '9', to), automaton_.range('1', '9', digit),
                            automaton_.byte('1', automaton_.range('0', '9', digit)),
                            automaton_.byte('2', automaton_.range('0', '4', digit)),
                            automaton_.byte('2', automaton_.byte('5', one_of("05", to)))};
      to = automaton_.fork(ways);
    }
    return to;
  }

  /// Eight groups, or fewer around "::", which stands for one at least.
  StateId ipv6(StateId to) {
    const auto group = [&](StateId after) {
      StateId next = after;
      for (int i = 0; i < 3; ++i) next = automaton_.fork(one_of(kHex, next), after);
      return one_of(kHex, next);
    };
    StateId next = group(to);         // the eighth group, then those before it
    StateId some = Automaton::kDead;  // groups after "::": none is left after the seventh group
    for (int i = 0; i < 7; ++i) {
      const StateId skip = automaton_.byte(':', automaton_.fork(to, some));
      next = group(automaton_.byte(':', automaton_.fork(skip, next)));
      some = group(automaton_.fork(to, automaton_.byte(':', some)));
    }
    return automaton_.fork(next, automaton_.spell("::", automaton_.fork(to, some)));
  }

  /// Words of letters and digits with these marks between them, one at a time: 1 to 2 * `counted` +
  /// 1 characters.
  StateId words(std::string_view marks, std::uint32_t counted, StateId to) {
    return automaton_.call(
        automaton_.enter(one_of(kAlnum, more_of(kAlnum, marks, kAlnum, Automaton::kReturn)), 0,
                         counted),
        to);
  }

  /// 6 to 4 * `counted` + 6 characters.
  StateId email(std::uint32_t counted, StateId to) {
    const StateId name_end = one_of(kLetters, more_of(kLetters, "", "", Automaton::kReturn));
    const StateId top = automaton_.byte('.', one_of(kLetters, name_end));
    const StateId domain =
        automaton_.enter(one_of(kAlnum, more_of(kAlnum, "--..", kAlnum, top)), 0, counted);
    constexpr std::string_view kLocal = "++--09AZ__az";
    const StateId local = automaton_.enter(
        one_of(kLocal, more_of(kLocal, "..", kLocal, Automaton::kReturn)), 0, counted);
    return automaton_.call(local, automaton_.byte('@', automaton_.call(domain, to)));
  }

  /// 5 to 3 * `counted` + 11 characters.
  StateId uri(std::uint32_t counted) {
    const StateId end = Automaton::kReturn;
    constexpr std::string_view kPath = "!!$$&'(.09::;;==@Z__az~~";  // and '/', '%', '?'
    const auto part = [&](std::string_view also, StateId next) {
      const StateId loop = automaton_.reserve();
      std::vector<Edge> edges = edges_of(std::string(kPath).append(also), Count::kTake, loop);
      edges.push_back({'%', '%', Count::kTake, hex(2, loop)});
      automaton_.become(loop, automaton_.fork(automaton_.bytes(edges), next));
      return loop;
    };
    const StateId fragment = automaton_.byte('#', part("//??", end), Count::kTake);
    const StateId behind_query = automaton_.fork(fragment, end);
    const StateId query = automaton_.fork(
        automaton_.byte('?', part("//??", behind_query), Count::kTake), behind_query);
    const StateId path = automaton_.byte('/', part("//", query), Count::kTake);
    const StateId behind_host = automaton_.fork(path, query);
    const StateId port =
        automaton_.byte(':', automaton_.range('1', '9', some_digits(3, behind_host)));
    const StateId host =
        one_of(kAlnum, more_of(kAlnum, "-.", kAlnum, automaton_.fork(port, behind_host)));
    const StateId scheme =
        one_of("az", more_of("09az", "++-.", "09az", automaton_.spell("://", host)));
    return automaton_.enter(scheme, 0, counted);
  }

 private:
  /// `ranges`: pairs of first and last bytes.
  static std::vector<Edge> edges_of(std::string_view ranges, Count count, StateId to) {
    std::vector<Edge> edges;
    for (std::size_t i = 0; i + 1 < ranges.size(); i += 2)
      edges.push_back({static_cast<std::uint8_t>(ranges[i]),
                       static_cast<std::uint8_t>(ranges[i + 1]), count, to});
    return edges;
  }
  StateId one_of(std::string_view ranges, StateId to) {
    return automaton_.bytes(edges_of(ranges, Count::kNone, to));
  }
  /// Further characters of `body`, and `marks`, each with one of `after` next, then `to`. All
  /// but the latter are counted, so that the end is never out of reach.
  StateId more_of(std::string_view body, std::string_view marks, std::string_view after,
                  StateId to) {
    const StateId loop = automaton_.reserve();
    std::vector<Edge> edges = edges_of(body, Count::kTake, loop);
    if (!marks.empty()) {
      const std::vector<Edge> between = edges_of(marks, Count::kTake, one_of(after, loop));
      edges.insert(edges.end(), between.begin(), between.end());
    }
    automaton_.become(loop, automaton_.fork(automaton_.bytes(edges), to));
    return loop;
  }
  /// One digit from `first` to `last`, then what `next` makes of it.
  template <class Next>
  StateId by_digit(int first, int last, Next&& next) {
    std::vector<Edge> edges;
    for (int digit = first; digit <= last; ++digit) {
      const auto byte = static_cast<std::uint8_t>('0' + digit);
      edges.push_back({byte, byte, Count::kNone, next(digit)});
    }
    return automaton_.bytes(edges);
  }
  /// "-02-29": months, the days of February up to this one.
  StateId months(int february, StateId to) {
    const StateId of_31 = days(31, to), of_30 = days(30, to), of_february = days(february, to);
    const auto days_of = [&](int month) {
      if (month == 2) return of_february;
      return month == 4 || month == 6 || month == 9 || month == 11 ? of_30 : of_31;
    };
    return automaton_.byte('-', by_digit(0, 1, [&](int tens) {
                             return by_digit(tens == 0 ? 1 : 0, tens == 0 ? 9 : 2,
                                             [&](int units) { return days_of(10 * tens + units); });
                           }));
  }
  StateId days(int most, StateId to) {
    return automaton_.byte('-', by_digit(0, most / 10, [&](int tens) {
                             return by_digit(tens == 0 ? 1 : 0, tens == most / 10 ? most % 10 : 9,
                                             [&](int) { return to; });
                           }));
  }
  StateId hour(StateId to) {
    return by_digit(0, 2,
                    [&](int tens) { return automaton_.range('0', tens == 2 ? '3' : '9', to); });
  }
  StateId sixty(StateId to) { return automaton_.range('0', '5', automaton_.range('0', '9', to)); }
  StateId some_digits(int most, StateId to) {  // or none
    return most == 0 ? to : automaton_.fork(digits(most, to), to);
  }
  StateId digits(int most, StateId to) {  // one at least
    StateId next = to;
    for (int i = 1; i < most; ++i) next = automaton_.fork(automaton_.range('0', '9', next), to);
    return automaton_.range('0', '9', next);
  }
  StateId hex(int count, StateId to) {
    for (int i = 0; i < count; ++i) to = one_of(kHex, to);
    return to;
  }

  Automaton& automaton_;
};

}  // namespace

std::optional<StateId> add_format(Automaton& automaton, std::string_view format, Lengths lengths) {
  Formats formats(automaton);
  const StateId end = automaton.byte('"', Automaton::kReturn);
  const auto quoted = [&](StateId inside) {
    return automaton.enter(automaton.byte('"', inside), 0, kUncounted);
  };
  /// Strings of these lengths, all of which must do.
  const auto fixed = [&](std::uint32_t shortest, std::uint32_t longest, StateId inside) {
    const bool fits = lengths.shortest <= shortest && longest <= lengths.longest;
    return fits ? quoted(inside) : Automaton::kDead;
  };
  /// Counted characters, at most `most`, where a text has up to `each` * counted + `rest`.
  const auto counted = [&](std::uint32_t shortest, std::uint32_t each, std::uint32_t rest,
                           std::uint32_t most) -> std::optional<std::uint32_t> {
    if (lengths.shortest > shortest || lengths.longest < rest) return std::nullopt;
    return std::min(most, (lengths.longest - rest) / each);
  };
  if (format == "date") return fixed(10, 10, formats.date(end));
  if (format == "time") return fixed(9, 21, formats.time(end));
  if (format == "date-time") return fixed(20, 32, formats.date_time(end));
  if (format == "duration") return fixed(3, 22, formats.duration(end));
  if (format == "uuid") return fixed(36, 36, formats.uuid(end, "18"));
  for (const char* const version : {"uuid1", "uuid3", "uuid4", "uuid5", "uuid6", "uuid7", "uuid8"})
    if (format == version) return fixed(36, 36, formats.uuid(end, std::string(2, format.back())));
  if (format == "ipv4") return fixed(7, 15, formats.ipv4(end));
  if (format == "ipv6") return fixed(2, 39, formats.ipv6(end));
  // At most 63 characters, as many as a label of a domain may have.
  if (format == "hostname") {
    const auto count = counted(1, 2, 1, 31);
    return count ? quoted(formats.words("-.", *count, end)) : Automaton::kDead;
  }
  if (format == "email") {
    const auto count = counted(6, 4, 6, 31);
    return count ? quoted(formats.email(*count, end)) : Automaton::kDead;
  }
  if (format == "uri" || format == "url") {
    const auto count = counted(5, 3, 11, 690);  // 2081 characters: browsers take no more
    return count ? quoted(automaton.call(formats.uri(*count), end)) : Automaton::kDead;
  }
  return std::nullopt;
}

std::optional<OpenFormat> add_open_format(Automaton& automaton, std::string_view format) {
  Formats formats(automaton);
  const StateId end = automaton.byte('"', Automaton::kReturn);
  const auto quoted = [&](StateId inside) {
    return automaton.enter(automaton.byte('"', inside), 0, kUncounted);
  };
  // As many characters as one label of a domain, and as a name before '@', may have.
  if (format == "hostname") return OpenFormat{quoted(formats.words("-.", kUncounted, end)), 63};
  if (format == "email") return OpenFormat{quoted(formats.email(kUncounted, end)), 64};
  if (format == "uri" || format == "url")
    return OpenFormat{quoted(automaton.call(formats.uri(kUncounted), end)), 256};
  const auto rule = add_format(automaton, format, {});
  return rule ? std::optional(OpenFormat{.rule = *rule}) : std::nullopt;
}

std::optional<Range> range_of_format(std::string_view format) {
  for (const char* const open : {"float", "double", "float32", "float64", "decimal", "number"})
    if (format == open) return Range{};
  const auto range = [](const char* below_zero, const char* most) {
    const auto bound = [](bool negative, const char* digits) {
      return Bound{.value = {.negative = negative, .whole = digits, .fraction = {}},
                   .included = true};
    };
    const bool has_negative = below_zero[0] != '0';
    return Range{.least = bound(has_negative, below_zero), .most = bound(false, most)};
  };
  if (format == "int8") return range("128", "127");
  if (format == "int16") return range("32768", "32767");
  if (format == "int32") return range("2147483648", "2147483647");
  if (format == "int64" || format == "int")
    return range("9223372036854775808", "9223372036854775807");
  if (format == "uint8") return range("0", "255");
  if (format == "uint16") return range("0", "65535");
  if (format == "uint32") return range("0", "4294967295");
  if (format == "uint64" || format == "uint") return range("0", "18446744073709551615");
  return std::nullopt;
}

bool is_known_format(std::string_view format) {
  Automaton automaton;
  return add_format(automaton, format, {}).has_value();
}

bool is_standard_format(std::string_view format) {
  static constexpr std::array<std::string_view, 19> kStandard{
      "date-time", "date",          "time", "duration",     "email",        "idn-email",
      "hostname",  "idn-hostname",  "ipv4", "ipv6",         "uri",          "uri-reference",
      "iri",       "iri-reference", "uuid", "uri-template", "json-pointer", "relative-json-pointer",
      "regex"};
  return std::ranges::find(kStandard, format) != kStandard.end();
}

bool is_free_format(std::string_view format) {
  static constexpr std::array<std::string_view, 7> kFree{
      "password", "binary", "path", "file-path", "directory-path", "textarea", "multi-line"};
  return std::ranges::find(kFree, format) != kFree.end();
}

}  // namespace canopy::grammar
