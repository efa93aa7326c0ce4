#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace canopy {

/// The first character of some bytes, or its fault (Unicode 15, table 3-7).
struct Utf8Step {
  enum class Kind : std::uint8_t { kCharacter, kInvalid, kIncomplete };
  Kind kind;
  std::uint8_t bytes;  // of the character, or of the longest prefix that one U+FFFD replaces
  char32_t value;      // only for kCharacter
};
/// `bytes` is not empty. kIncomplete: all of it is the beginning of some character.
Utf8Step utf8_step(std::string_view bytes);

/// The length of the character that `lead` begins, in text known to be UTF-8.
inline std::size_t utf8_length(char lead) {
  const auto b = static_cast<unsigned char>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

bool is_utf8(std::string_view bytes);
void append_utf8(std::string& out, char32_t value);

/// Appends what is whole in `bytes`, each malformed part as one U+FFFD, and returns how many bytes
/// that used: all but the beginning of a character at the end, at most three.
std::size_t append_whole(std::string& out, std::string_view bytes);
/// The same, where nothing follows: an unfinished character is malformed too.
std::string to_utf8(std::string_view bytes);

/// A text for a message: one line of valid UTF-8 however hostile the text, of at most `most` bytes
/// of it.
std::string printable(std::string_view text, std::size_t most);
/// The same of 120 bytes, 'in quotes'.
std::string in_quotes(std::string_view text);

}  // namespace canopy
