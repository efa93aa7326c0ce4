#include "src/text/pipeline/byte_level.h"

#include <array>

#include "src/base/utf8.h"

namespace canopy::text {

namespace {

constexpr int kAlphabetEnd = 0x100 + 68;

struct Alphabet {
  std::array<std::string, 256> visible;
  std::array<int, kAlphabetEnd> byte;

  Alphabet() {
    byte.fill(-1);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      const int point = printable ? b : next++;
      append_utf8(visible[static_cast<std::size_t>(b)], static_cast<char32_t>(point));
      byte[static_cast<std::size_t>(point)] = b;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

std::string_view byte_to_visible(unsigned char byte) { return alphabet().visible[byte]; }

std::string visible_to_bytes(std::string_view visible) {
  std::string bytes;
  for (std::string_view rest = visible; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind != Utf8Step::Kind::kCharacter || step.value >= kAlphabetEnd ||
        alphabet().byte[step.value] < 0) {
      return std::string(visible);
    }
    bytes.push_back(static_cast<char>(alphabet().byte[step.value]));
    rest.remove_prefix(step.bytes);
  }
  return bytes;
}

}  // namespace canopy::text
