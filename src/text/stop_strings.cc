#include "src/text/stop_strings.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/base/error.h"

namespace canopy {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) require(!stop.empty(), "a stop string is empty");
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  std::size_t end = std::string::npos;  // where the first stop string begins
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    stopped_ = true;
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

std::string ShownText::push(TokenId token) {
  // Some files do not mark such a token as special, and a reader of a call would stumble over it.
  std::string before = end_ ? stream_.push(*std::exchange(end_, {})) : "";
  if (tokenizer_->ends_text(token))
    end_ = token;
  else
    before += stream_.push(token);
  return stops_.push(before);
}

std::string ShownText::end(bool cut_off) {
  std::string last = cut_off && end_ ? stream_.push(*end_) : "";
  if (!cut_off) last += stream_.flush();
  return stops_.push(last) + stops_.flush();
}

std::string shown_text(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                       const std::vector<std::string>& stops, bool cut_off) {
  ShownText shown(tokenizer, stops);
  std::string text;
  for (const TokenId token : tokens) text += shown.push(token);
  return text + shown.end(cut_off);
}

}  // namespace canopy
