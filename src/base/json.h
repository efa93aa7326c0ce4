#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/file.h"

namespace canopy {

/// A tokenizer.json, the deepest of the files that are read, has eight levels. What walks or copies
/// a document recurses, so its depth is bounded before it is built.
inline constexpr int kMostJsonDepth = 64;
/// An array without members takes 48 bytes of memory, and three of its file. The largest
/// tokenizer.json in use, of half a million merges, has two million values.
inline constexpr std::size_t kMostJsonValues = 4'000'000;
/// An ordered object is searched from its first member on, so that work on all members of a large
/// one grows with their square: minutes for the megabytes that a request may have.
inline constexpr std::size_t kMostOrderedMembers = 10'000;

/// Parses JSON that may be hostile. Throws Error: not JSON (with the byte), nested deeper than
/// kMostJsonDepth, more than kMostJsonValues, or a key given twice in one object.
nlohmann::json parse_json(std::string_view text);
/// The treatment of integers that 64 bits do not hold.
enum class LargeIntegers : bool { kRounded, kKept };
/// The same; keys keep their order, and an object of more than kMostOrderedMembers is refused.
nlohmann::ordered_json parse_ordered_json(std::string_view text,
                                          LargeIntegers large = LargeIntegers::kRounded);

/// The digits, with their sign, of an integer outside of int64_t. nlohmann has those up to 2^64 - 1
/// as unsigned ones; for others, where they are kept, it has no type but the binary one, which no
/// JSON is. Nothing: `value` is something else.
std::optional<std::string> large_integer(const nlohmann::ordered_json& value);
/// A document with its large integers as they came, on one line; json_text() would write something
/// else in their place.
std::string exact_json_text(const nlohmann::ordered_json& value);

/// The integer that `value` is, if it is one and T holds it. Numbers of a file come through this:
/// nlohmann's own get() casts whatever it finds, and to cast a large float is undefined.
template <std::integral T, class Json>
std::optional<T> integer_in(const Json& value) {
  const auto as_held = [](auto number) -> std::optional<T> {
    if (!std::in_range<T>(number)) return std::nullopt;
    return static_cast<T>(number);
  };
  if (value.is_number_unsigned()) return as_held(value.template get<std::uint64_t>());
  if (value.is_number_integer()) return as_held(value.template get<std::int64_t>());
  return std::nullopt;
}

/// Returns nlohmann's message on a syntax error without its prefix: one line in quotes.
std::string syntax_error(const nlohmann::json::exception& error);

/// The text with the literals NaN, Infinity and -Infinity, which Python's json writes and JSON does
/// not have, as strings of these names: whatever wants a number there refuses them.
std::string with_quoted_literals(std::string text);
/// A file of JSON: read_file(), then parse_json(). In a model's files, which Python wrote, the
/// literals above are strings. Throws Error naming the file.
nlohmann::json read_json(const std::filesystem::path& file, std::uint64_t most_bytes, FileKind kind,
                         const std::stop_token& stop = {});

}  // namespace canopy
