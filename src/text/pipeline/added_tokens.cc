#include "src/text/pipeline/added_tokens.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/token_table.h"

namespace canopy::text {

namespace {

bool is_white_space(char32_t c) {  // the property White_Space
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string_view first_character(std::string_view text) {
  return text.empty() ? text : text.substr(0, utf8_length(text[0]));
}

std::string_view last_character(std::string_view text) {
  std::size_t at = text.size();
  while (at > 0 && (static_cast<unsigned char>(text[--at]) & 0xC0) == 0x80) {
  }
  return text.substr(at);
}

std::size_t white_space_before(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const std::string_view last = last_character(text.substr(0, text.size() - bytes));
    if (!is_white_space(utf8_step(last).value)) break;
    bytes += last.size();
  }
  return bytes;
}

std::size_t white_space_after(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Utf8Step step = utf8_step(text.substr(bytes));
    if (!is_white_space(step.value)) break;
    bytes += step.bytes;
  }
  return bytes;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  if (token.pattern.size() > kLongest) {
    throw Error("added token " + in_quotes(token.pattern) + " is " +
                std::to_string(token.pattern.size()) + " bytes long; the limit is " +
                std::to_string(kLongest));
  }
  if (token.pattern.empty()) return;  // the reference library ignores it too
  auto& lengths = lengths_[static_cast<unsigned char>(token.pattern[0])];
  const auto length = static_cast<std::uint16_t>(token.pattern.size());
  const auto at = std::lower_bound(lengths.begin(), lengths.end(), length, std::greater<>());
  if (at == lengths.end() || *at != length) lengths.insert(at, length);
  std::string key = token.pattern;
  tokens_.insert_or_assign(std::move(key), std::move(token));
}

const AddedToken* AddedTokens::match(std::string_view text) const {
  for (const std::size_t length : lengths_[static_cast<unsigned char>(text[0])]) {
    if (length > text.size()) continue;
    const auto it = tokens_.find(text.substr(0, length));
    if (it != tokens_.end()) return &it->second;
  }
  return nullptr;
}

bool AddedTokens::inside_word(std::string_view before, std::string_view after) const {
  std::vector<Span> found;
  for (const std::string_view character : {last_character(before), first_character(after)}) {
    word_character_.find_all(character, found, Bounds(character.size()));
    if (!found.empty()) return true;
  }
  return false;
}

std::vector<Segment> AddedTokens::split(std::string_view text) const {
  std::vector<Segment> segments;
  std::size_t plain = 0;  // the beginning of the text that belongs to no token
  const auto put = [&](std::size_t begin, std::size_t end, std::optional<TokenId> token) {
    if (begin < end) segments.push_back({text.substr(begin, end - begin), token});
  };
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = match(text.substr(at));
    if (!token) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->pattern.size();
    at = end;  // also when the match is discarded: nothing shorter is tried
    if (token->single_word && inside_word(text.substr(0, begin), text.substr(end))) continue;
    if (token->left_strip)
      begin = std::max(plain, begin - white_space_before(text.substr(0, begin)));
    if (token->right_strip) end += white_space_after(text.substr(end));
    put(plain, begin, std::nullopt);
    put(begin, end, token->id);
    plain = end;
  }
  put(plain, text.size(), std::nullopt);
  return segments;
}

}  // namespace canopy::text
