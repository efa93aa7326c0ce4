#pragma once
#include <string>
#include <string_view>

namespace canopy::text {

/// The alphabet of byte-level BPE (GPT-2): each byte is one visible character. Printable Latin-1
/// stands for itself, the other 68 bytes for U+0100, U+0101, ... in order.
std::string_view byte_to_visible(unsigned char byte);
/// The bytes that `visible` stands for, or `visible` itself if any character is outside the
/// alphabet (as the reference library decodes added tokens).
std::string visible_to_bytes(std::string_view visible);

}  // namespace canopy::text
