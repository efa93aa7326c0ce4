#include "src/text/stop_strings.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "src/base/error.h"

namespace canopy {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) require(!stop.empty(), "a stop string is empty");
}

std::string StopStrings::push(std::string_view text) {
  if (which_) return {};
  held_ += text;
  std::size_t end = std::string::npos;  // the beginning of the first stop string
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    const std::size_t at = held_.find(stops_[i]);
    if (at >= end) continue;
    end = at;
    which_ = i;
  }
  if (which_) {
    held_.resize(end);
    return std::exchange(held_, {});
  }
  // The longest end of the text that a stop string begins with.
  std::size_t keep = 0;
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::flush() { return std::exchange(held_, {}); }

namespace {

constexpr unsigned char kMark = 0xF8;  // and above it: bytes that no UTF-8 has

/// A special token in a text: bytes that nothing else in there has, as many for each, the first of
/// which begins a mark alone.
std::string mark_of(TokenId token) {
  std::string mark(1, static_cast<char>(0xFF));
  for (auto rest = static_cast<std::uint32_t>(token), i = 0U; i < 12; ++i, rest /= 7)
    mark += static_cast<char>(kMark + rest % 7);
  return mark;
}

/// `text` with marks in place of the special tokens that it names.
std::string with_marks(const Tokenizer& tokenizer, std::string text) {
  std::size_t from = 0;
  for (const TokenId token : tokenizer.encode(text, AddSpecial::kNo)) {
    if (!tokenizer.is_special(token)) continue;
    const std::string_view name = tokenizer.token_string(token);
    const std::size_t at = text.find(name, from);
    if (at == std::string::npos) continue;  // its name has been normalized
    const std::string mark = mark_of(token);
    text.replace(at, name.size(), mark);
    from = at + mark.size();
  }
  return text;
}

std::string without_marks(std::string text) {
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) >= kMark; });
  return text;
}

/// The stop strings with marks; those that name no special token as they are.
std::vector<std::string> with_marks(const Tokenizer& tokenizer, std::vector<std::string> stops) {
  for (std::string& stop : stops) stop = with_marks(tokenizer, std::move(stop));
  return stops;
}

}  // namespace

ShownText::ShownText(const Tokenizer& tokenizer, const std::vector<std::string>& stops,
                     std::vector<TokenId> named, int least)
    : tokenizer_(&tokenizer),
      words_(stops),
      named_(std::move(named)),
      least_(least),
      stream_(tokenizer),
      marked_stops_(with_marks(tokenizer, stops)),
      stops_(stops) {}

std::string ShownText::push(TokenId token) {
  // Some files do not mark such a token as special, and a reader of a call would stumble over it.
  std::string before = end_ ? stream_.push(*std::exchange(end_, {})) : "";
  if (std::find(named_.begin(), named_.end(), token) != named_.end())
    before += tokenizer_->token_string(token);
  else if (tokenizer_->is_special(token))
    before += mark_of(token);
  else if (tokenizer_->ends_text(token))
    end_ = token;
  else
    before += stream_.push(token);
  if (least_ > 0) {
    --least_;
    return without_marks(before);
  }
  return stops_.push(without_marks(marked_stops_.push(before)));
}

std::string ShownText::end(bool cut_off) {
  std::string last = cut_off && end_ ? stream_.push(*end_) : "";
  if (!cut_off) last += stream_.flush();
  last = marked_stops_.push(last);
  last += marked_stops_.flush();
  std::string shown = stops_.push(without_marks(last));
  return shown += stops_.flush();
}

std::string ShownText::stopping_word() const {
  const std::optional<std::size_t> which =
      stops_.stopped() ? stops_.which() : marked_stops_.which();
  return which ? words_[*which] : std::string();
}

std::string shown_text(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                       const std::vector<std::string>& stops, bool cut_off) {
  ShownText shown(tokenizer, stops);
  std::string text;
  for (const TokenId token : tokens) text += shown.push(token);
  return text + shown.end(cut_off);
}

}  // namespace canopy
