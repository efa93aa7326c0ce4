#include "src/speculation/growers/hierarchy_grower.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/speculation/logits/draw_row.h"

namespace canopy {

HierarchyGrower::HierarchyGrower(std::span<const TokenId> text, Limits limits, Guess guess,
                                 std::optional<StepRng> rng)
    : limits_(limits),
      guess_(std::move(guess)),
      rng_(rng),
      text_(text.begin(), text.end()),
      tree_(text.back()),
      run_{0},
      asked_{text.back()} {}

std::vector<DraftedNode> HierarchyGrower::take(std::span<const DraftedRow> rows) {
  require(rows.size() == asked_.size(), "draft: a row for each token that was asked for");
  TokenId token = asked_.front();
  for (std::size_t i = 0; i < rows.size() && token == asked_[i]; ++i) {
    const NodeId last = tree_.size() - 1;
    run_.back() = runs_ + static_cast<int>(i);
    if (last == limits_.longest) return {};
    token = drawn_token(rows[i].drawn, rng_, last);
    tree_.add_children(last, {&token, 1});
    run_.push_back(-1);
    text_.push_back(token);
  }
  const int left = limits_.longest - (tree_.size() - 1);
  if (left == 0) return {};

  runs_ += static_cast<int>(asked_.size());
  asked_ = {token};
  // Guesses beyond the chain's end would give rows that nobody wants.
  for (const TokenId guess : guess_(text_, std::min(limits_.guesses, left - 1)))
    asked_.push_back(guess);
  std::vector<DraftedNode> next;
  const int parent = run_[run_.size() - 2];
  for (std::size_t i = 0; i < asked_.size(); ++i)
    next.push_back({asked_[i], i == 0 ? parent : runs_ + static_cast<int>(i) - 1});
  return next;
}

}  // namespace canopy
