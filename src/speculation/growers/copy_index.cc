#include "src/speculation/growers/copy_index.h"

#include <algorithm>
#include <bit>

namespace canopy {

std::size_t CopyIndex::bucket_of(TokenId before, TokenId last) const {
  const std::uint64_t both =
      (static_cast<std::uint64_t>(static_cast<std::uint32_t>(before)) << 32) |
      static_cast<std::uint32_t>(last);
  return (both * 0x9E3779B97F4A7C15u >> 32) & (latest_.size() - 1);
}

void CopyIndex::enter(std::size_t place) {
  if (place < kLeastMatch) return;
  std::int32_t& latest = latest_[bucket_of(text_[place - 2], text_[place - 1])];
  earlier_[place] = latest;
  latest = static_cast<std::int32_t>(place);
}

void CopyIndex::grow_buckets() {
  latest_.assign(std::bit_ceil(std::max<std::size_t>(2 * text_.size(), 64)), 0);
  earlier_.assign(text_.size(), 0);
  for (std::size_t place = 0; place < text_.size(); ++place) enter(place);
}

void CopyIndex::follow(std::span<const TokenId> text) {
  if (text.size() <= text_.size()) text_.clear();
  const std::size_t known = text_.size();
  text_.insert(text_.end(), text.begin() + static_cast<std::ptrdiff_t>(known), text.end());
  if (known == 0 || latest_.size() < text_.size()) return grow_buckets();
  earlier_.resize(text_.size());
  for (std::size_t place = known; place < text_.size(); ++place) enter(place);
}

std::optional<CopyIndex::Match> CopyIndex::find(std::span<const TokenId> path) const {
  const auto of_text = static_cast<std::ptrdiff_t>(std::min(text_.size(), kLongestMatch));
  std::vector<TokenId> tail(text_.end() - of_text, text_.end());
  tail.insert(tail.end(), path.begin(), path.end());
  if (tail.size() < kLeastMatch || latest_.empty()) return std::nullopt;
  const std::size_t longest = std::min(tail.size(), kLongestMatch);
  Match best;
  int looked_at = 0;
  for (auto place = latest_[bucket_of(tail[tail.size() - 2], tail.back())];
       place > 0 && looked_at < kMostPlaces; place = earlier_[static_cast<std::size_t>(place)]) {
    ++looked_at;
    const auto after = static_cast<std::size_t>(place);
    std::size_t same = 0;
    while (same < std::min(longest, after) &&
           text_[after - 1 - same] == tail[tail.size() - 1 - same])
      ++same;
    if (same < kLeastMatch || static_cast<int>(same) <= best.length) continue;  // of another pair
    best = {text_[after], static_cast<int>(same)};
    if (same == longest) break;
  }
  if (best.length == 0) return std::nullopt;
  return best;
}

std::size_t CopyIndex::host_bytes(int context) {
  const auto tokens = static_cast<std::size_t>(context);
  // A vector that grows may have twice its size, and the buckets twice the next power of two.
  return tokens * (2 * sizeof(TokenId) + 2 * sizeof(std::int32_t) + 4 * sizeof(std::int32_t));
}

}  // namespace canopy
