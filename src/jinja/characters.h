#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace canopy::jinja {

// Characters as Python sees them. Texts are UTF-8.

std::size_t count_characters(std::string_view text);
/// The bytes at which its characters begin, and its end.
std::vector<std::size_t> character_starts(std::string_view text);
bool is_space(char32_t c);       // as str.isspace()
bool is_line_break(char32_t c);  // as str.splitlines()
bool is_printable(char32_t c);   // as str.isprintable()
bool is_letter(char32_t c);      // as str.isalpha()
bool is_digit(char32_t c);       // as str.isdigit() of ASCII and other decimal digits
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);

/// Leaves out the spaces at its ends.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
/// Leaves out the characters at its ends that `set` has.
std::string_view strip_left(std::string_view text, std::string_view set);
std::string_view strip_right(std::string_view text, std::string_view set);

/// Finds `part` in `text` from byte `from` on; npos if absent. In linear time, however hostile
/// both.
std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0);

}  // namespace canopy::jinja
