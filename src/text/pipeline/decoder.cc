#include "src/text/pipeline/decoder.h"

#include "src/base/utf8.h"
#include "src/text/pipeline/bpe.h"
#include "src/text/pipeline/byte_level.h"

namespace canopy::text {

namespace {

void apply(const Replace& step, std::string& piece, const Bounds& bounds) {
  if (is_utf8(piece)) piece = step.pattern.replace_all(piece, step.with, bounds);
}
void apply(const ByteFallback&, std::string& piece, const Bounds&) {
  if (const auto byte = named_byte(piece)) piece = *byte;
}
void apply(const FromByteLevel&, std::string& piece, const Bounds&) {
  piece = visible_to_bytes(piece);
}
void apply(const StripToken& step, std::string& piece, const Bounds&) {
  piece = strip(step, piece);
}

}  // namespace

std::string strip(const StripToken& step, std::string_view text) {
  for (std::size_t i = 0; i < step.start && text.starts_with(step.character); ++i)
    text.remove_prefix(step.character.size());
  for (std::size_t i = 0; i < step.stop && text.ends_with(step.character); ++i)
    text.remove_suffix(step.character.size());
  return std::string(text);
}

std::string make_piece(const PieceSteps& steps, std::string_view token) {
  std::string piece(token);
  const Bounds bounds(token.size());
  for (const auto& step : steps) std::visit([&](const auto& s) { apply(s, piece, bounds); }, step);
  return piece;
}

}  // namespace canopy::text
