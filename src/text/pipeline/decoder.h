#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/text/pipeline/normalizer.h"
#include "src/text/token_table.h"

namespace canopy::text {

/// "<0x0A>" is the byte 10.
struct ByteFallback {};
/// Visible characters are bytes (src/text/pipeline/byte_level.h).
struct FromByteLevel {};
/// Takes up to `start` and `stop` times `character` from the two ends of a token.
struct StripToken {
  std::string character;
  std::size_t start = 0, stop = 0;
};
std::string strip(const StripToken& step, std::string_view text);

/// The steps from a token's text to its bytes, in order. Throws Error if they grow too long
/// (Bounds).
using PieceSteps = std::vector<std::variant<Replace, ByteFallback, FromByteLevel, StripToken>>;
std::string make_piece(const PieceSteps& steps, std::string_view token);

/// The changes that decoding makes to the beginning of a whole text, but not of a continuation.
struct TextStart {
  StripToken strip;
  std::string drop_from_first;  // this character vanishes from the first token
};

}  // namespace canopy::text
