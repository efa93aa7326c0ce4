#include "planner/text_acceptance.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace canopy {

TextAcceptance::TextAcceptance(std::vector<Rank> ranks) : ranks_(std::move(ranks)) {
  require(ranks_.size() <= kMaxRanks, "acceptance: more ranks than are counted");
  for (std::size_t k = 0; k < ranks_.size(); ++k) {
    const std::int64_t next = k + 1 < ranks_.size() ? ranks_[k + 1].asked : 0;
    require(ranks_[k].accepted >= 0 && next >= 0 && ranks_[k].accepted <= ranks_[k].asked &&
                next <= ranks_[k].asked - ranks_[k].accepted,
            "acceptance: more children were accepted, or asked for next, than were asked for");
  }
}

void TextAcceptance::observe(int level, int children, int accepted) {
  require(accepted >= -1 && accepted < children, "acceptance: no such child");
  if (children == 0) {
    owes_position_ = owes_position_ || level > 0;
    return;
  }
  std::int64_t positions = 1;
  if (level == 0 && std::exchange(owes_position_, false)) positions = 2;
  const auto asked = static_cast<std::size_t>(accepted < 0 ? children : accepted + 1);
  ranks_.resize(std::clamp(asked, ranks_.size(), kMaxRanks));
  for (std::size_t k = 0; k < std::min(asked, kMaxRanks); ++k) {
    ranks_[k].asked += positions;
    if (static_cast<int>(k) == accepted) ranks_[k].accepted += positions;
  }
}

std::uint64_t text_fingerprint(std::span<const TokenId> prompt,
                               std::span<const TokenId> generated) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto add = [&](std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) hash = (hash ^ (number >> (8 * i) & 0xff)) * 0x100000001b3;
  };
  add(prompt.size(), 8);
  for (const TokenId token : prompt) add(static_cast<std::uint32_t>(token), 4);
  for (const TokenId token : generated.first(std::min(generated.size(), kTextBeginning)))
    add(static_cast<std::uint32_t>(token), 4);
  return hash;
}

}  // namespace canopy
