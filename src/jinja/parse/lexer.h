#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace canopy::jinja {

enum class TokenKind : std::uint8_t {
  kData,  // text between tags
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::uint32_t offset;  // into the source
  std::string text;      // of strings what they mean, of numbers without '_'
};

/// The template as Jinja reads it: line ends are \n, and the last one is dropped.
std::string normalized_source(std::string_view source);

/// The tokens of a normalized source, kEnd the last. Blocks take the spaces before them on their
/// line and the line end after them (lstrip_blocks and trim_blocks), as `transformers` has it.
/// Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace canopy::jinja
