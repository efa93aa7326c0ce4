#pragma once
#include <optional>
#include <string_view>

#include "src/grammar/automaton.h"
#include "src/grammar/schema/decimal.h"

namespace canopy::grammar {

/// Characters that a string may have.
struct Lengths {
  std::uint32_t shortest = 0, longest = kUncounted;
  auto operator<=>(const Lengths&) const = default;
};

/// A rule for JSON strings of a `format`, without escapes: some of those that the format allows,
/// enough to say what it is for (docs/grammar.md), and nothing that a usual check of it refuses.
/// kDead: none of them has such a length whatever it holds. Nothing: the format is not known.
/// Source: RFC 3339 (date, time, date-time, duration), RFC 9562 (uuid), RFC 5321 (email), RFC 1123
/// (hostname), RFC 3986 (uri), RFC 4291 (ipv6).
std::optional<StateId> add_format(Automaton& automaton, std::string_view format, Lengths lengths);

/// A rule for the strings of a format, and for longer ones that only look like them.
struct OpenFormat {
  StateId rule = Automaton::kDead;
  std::uint32_t longest = kUncounted;  // characters of strings that are surely of the format
};

/// Adds a rule for a format without counters, where lengths are bounded by other means.
std::optional<OpenFormat> add_open_format(Automaton& automaton, std::string_view format);

/// The numbers of a `format` that names a type of numbers, as OpenAPI and compilers of schemas have
/// them; those of "float" and the like are open. Nothing: the format is not known.
std::optional<Range> range_of_format(std::string_view format);

/// Says whether add_format() knows the format.
bool is_known_format(std::string_view format);

/// Says whether JSON Schema defines the format, of strings, known or not.
bool is_standard_format(std::string_view format);

/// A format that says nothing about which strings there are, "password", say.
bool is_free_format(std::string_view format);

}  // namespace canopy::grammar
