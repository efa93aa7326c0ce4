#pragma once
// Looks for what CopyIndex finds anew in the whole text.
#include <optional>
#include <vector>

#include "src/speculation/growers/copy_index.h"

namespace canopy::testing {

inline std::optional<CopyIndex::Match> copied_in(const std::vector<TokenId>& text,
                                                 const std::vector<TokenId>& path) {
  std::vector<TokenId> all = text;
  all.insert(all.end(), path.begin(), path.end());
  CopyIndex::Match best;
  for (std::size_t after = 1; after < text.size(); ++after) {
    std::size_t same = 0;
    while (same < CopyIndex::kLongestMatch && same < after && same < all.size() &&
           text[after - 1 - same] == all[all.size() - 1 - same])
      ++same;
    if (same >= CopyIndex::kLeastMatch && static_cast<int>(same) >= best.length)
      best = {text[after], static_cast<int>(same)};
  }
  if (best.length == 0) return std::nullopt;
  return best;
}

}  // namespace canopy::testing
