#include "src/speculation/draw_row.h"

#include <algorithm>
#include <numeric>

namespace canopy {

TokenId drawn_token(std::span<const float> row, const std::optional<StepRng>& rng, NodeId node) {
  if (!rng) return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
  const double uniform = rng->uniform(StepRng::Purpose::kDraft, static_cast<std::uint64_t>(node));
  double left = uniform * std::accumulate(row.begin(), row.end(), 0.0);
  TokenId last = 0;  // if rounding leaves a crumb: the last token that can be drawn
  for (std::size_t t = 0; t < row.size(); ++t) {
    if (!(row[t] > 0)) continue;
    last = static_cast<TokenId>(t);
    if (left < static_cast<double>(row[t])) break;
    left -= static_cast<double>(row[t]);
  }
  return last;
}

}  // namespace canopy
