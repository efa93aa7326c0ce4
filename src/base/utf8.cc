#include "src/base/utf8.h"

namespace canopy {

namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
}

Utf8Step utf8_step(std::string_view bytes) {
  using Kind = Utf8Step::Kind;
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return {Kind::kCharacter, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::kInvalid, 1, 0};
  const std::uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t value = lead & (0x7Fu >> length);
  for (std::uint8_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::kIncomplete, i, 0};
    unsigned low = 0x80, high = 0xBF;
    if (i == 1) {  // no overlong forms, no surrogates, nothing above U+10FFFF
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (at(i) < low || at(i) > high) return {Kind::kInvalid, i, 0};
    value = value << 6 | (at(i) & 0x3Fu);
  }
  return {Kind::kCharacter, length, value};
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    if (step.kind != Utf8Step::Kind::kCharacter) return false;
    bytes.remove_prefix(step.bytes);
  }
  return true;
}

void append_utf8(std::string& out, char32_t value) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { put(0x80 | (value >> shift & 0x3F)); };
  if (value < 0x80) return put(value);
  if (value < 0x800) {
    put(0xC0 | value >> 6);
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    tail(6);
  } else {
    put(0xF0 | value >> 18);
    tail(12);
    tail(6);
  }
  tail(0);
}

std::size_t append_whole(std::string& out, std::string_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size()) {
    const Utf8Step step = utf8_step(bytes.substr(used));
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    out += step.kind == Utf8Step::Kind::kInvalid ? kReplacement : bytes.substr(used, step.bytes);
    used += step.bytes;
  }
  return used;
}

std::string to_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (append_whole(out, bytes) < bytes.size()) out += kReplacement;
  return out;
}

std::string printable(std::string_view text, std::size_t most) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : to_utf8(text.substr(0, most))) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      out += c;
    else
      out.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
  }
  return out.append(text.size() > most ? "..." : "");
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 120;
  return std::string("'").append(printable(text, kMost)).append("'");
}

}  // namespace canopy
