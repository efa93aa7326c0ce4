#include "src/jinja/characters.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>

#include "src/base/utf8.h"

namespace canopy::jinja {

namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

char32_t first_character(std::string_view text) { return utf8_step(text).value; }

/// The last character of a text that is not empty.
std::string_view last_of(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && continues(text[at])) --at;
  return text.substr(at);
}

template <class Drops>
std::string_view strip_left_if(std::string_view text, const Drops& drops) {
  while (!text.empty()) {
    const std::string_view c = text.substr(0, utf8_length(text[0]));
    if (!drops(c)) break;
    text.remove_prefix(c.size());
  }
  return text;
}

template <class Drops>
std::string_view strip_right_if(std::string_view text, const Drops& drops) {
  while (!text.empty()) {
    const std::string_view c = last_of(text);
    if (!drops(c)) break;
    text.remove_suffix(c.size());
  }
  return text;
}

bool is_space_text(std::string_view c) { return is_space(first_character(c)); }

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::vector<std::size_t> character_starts(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (!continues(text[i])) starts.push_back(i);
  starts.push_back(text.size());
  return starts;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool is_letter(char32_t c) {
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    text.remove_prefix(step.bytes);
    if (step.value == U'ß')
      out += "SS";
    else
      append_utf8(
          out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(step.value))));
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    text.remove_prefix(step.bytes);
    if (step.value == U'İ')
      out += "i\u0307";
    else
      append_utf8(
          out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(step.value))));
  }
  return out;
}

std::string_view strip_left(std::string_view text) { return strip_left_if(text, is_space_text); }
std::string_view strip_right(std::string_view text) { return strip_right_if(text, is_space_text); }
// A whole character is found in UTF-8 nowhere but where that character stands.
std::string_view strip_left(std::string_view text, std::string_view set) {
  return strip_left_if(text, [&](std::string_view c) { return set.find(c) != set.npos; });
}
std::string_view strip_right(std::string_view text, std::string_view set) {
  return strip_right_if(text, [&](std::string_view c) { return set.find(c) != set.npos; });
}

std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // std::string's find() takes the product of both lengths where they are chosen so.
  const void* const at = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (part.empty()) return from;
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

}  // namespace canopy::jinja
