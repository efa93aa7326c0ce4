#include "src/speculation/logits/draw_row.h"

#include <algorithm>
#include <numeric>

namespace canopy {

namespace {

/// The token that a uniform number draws from a row, which need not sum to 1.
TokenId token_by(double uniform, std::span<const float> row) {
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

}  // namespace

TokenId drawn_token(std::span<const float> row, const std::optional<StepRng>& rng, NodeId node) {
  if (!rng) return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
  return token_by(rng->uniform(StepRng::Purpose::kDraft, static_cast<std::uint64_t>(node)), row);
}

std::vector<TokenId> distinct_tokens(std::span<const float> row, int count, const StepRng& rng,
                                     std::uint64_t first) {
  std::vector<float> left(row.begin(), row.end());
  const auto possible = std::count_if(row.begin(), row.end(), [](float q) { return q > 0; });
  std::vector<TokenId> drawn;
  while (std::ssize(drawn) < std::min<std::ptrdiff_t>(count, possible)) {
    drawn.push_back(token_by(rng.uniform(StepRng::Purpose::kDraft, first + drawn.size()), left));
    left[static_cast<std::size_t>(drawn.back())] = 0;
  }
  return drawn;
}

}  // namespace canopy
