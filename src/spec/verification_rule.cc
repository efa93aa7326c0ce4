#include "src/spec/verification_rule.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "src/base/error.h"

namespace canopy {
namespace {

double sum(std::span<const double> x) { return std::accumulate(x.begin(), x.end(), 0.0); }

void divide(std::span<double> x, double by) {
  for (double& value : x) value /= by;
}

/// R and D of Algorithm 1 at one node: what the target still owes, and what the next child was
/// drawn from. Both sum to 1.
class Siblings {
 public:
  Siblings(std::span<double> p, std::span<double> q) : residual_(p), draft_(q) {
    support_ = std::count_if(q.begin(), q.end(), [](double value) { return value > 0; });
    divide(draft_, sum(draft_));
  }

  double chance(TokenId token) const {
    const auto at = static_cast<std::size_t>(token);
    if (token < 0 || at >= draft_.size() || !(draft_[at] > 0))
      throw Error("verification: token " + std::to_string(token) +
                  " has no draft probability: q is not what drew this tree");
    return residual_[at] / draft_[at];
  }

  /// The last of `refused` was just refused, the others before it.
  void refuse(std::span<const TokenId> refused) {
    owe_the_rest();
    draft_[static_cast<std::size_t>(refused.back())] = 0;
    // Counted by token: a sum of floats need not reach 0 when the support is used up.
    if (--support_ == 0) spread(refused);
    if (support_ > 0) divide(draft_, sum(draft_));
  }

 private:
  /// R <- norm(max(R - D, 0)). Where R exceeds D nowhere, the two are equal up to rounding, so a
  /// refusal had a chance of about 1e-16 a token: R stays, which errs by no more than that.
  void owe_the_rest() {
    double left = 0;
    for (std::size_t t = 0; t < draft_.size(); ++t) left += std::max(residual_[t] - draft_[t], 0.0);
    left += sum(residual_.subspan(draft_.size()));
    if (!(left > 0)) return;
    for (std::size_t t = 0; t < draft_.size(); ++t)
      residual_[t] = std::max(residual_[t] - draft_[t], 0.0);
    divide(residual_, left);
  }

  /// D <- uniform over the tokens not yet drawn.
  void spread(std::span<const TokenId> drawn) {
    std::fill(draft_.begin(), draft_.end(), 1.0);
    for (const TokenId token : drawn) draft_[static_cast<std::size_t>(token)] = 0;
    support_ = static_cast<std::ptrdiff_t>(draft_.size() - drawn.size());
  }

  std::span<double> residual_, draft_;
  std::ptrdiff_t support_ = 0;
};

}  // namespace

Verdict follow_samples(const TokenTree& tree, const std::function<TokenId(NodeId)>& sample) {
  Verdict verdict{{0}, 0};
  while (true) {
    verdict.next = sample(verdict.path.back());
    const TokenTree::Range children = tree.children(verdict.path.back());
    NodeId child = children.first;
    const NodeId end = children.first + children.count;
    while (child < end && tree.token(child) != verdict.next) ++child;
    if (child == end) return verdict;
    verdict.path.push_back(child);
  }
}

Verdict accept_or_reject(const TokenTree& tree, const LendRow& p_row, const LendRow& q_row,
                         Choices& choices) {
  Verdict verdict{{0}, 0};
  while (true) {
    const NodeId node = verdict.path.back();
    const std::span<double> residual = p_row(node);
    const double total = sum(residual);
    require(std::isfinite(total) && total > 0,
            "verification: a row of the target is not one of probabilities");
    divide(residual, total);
    const TokenTree::Range children = tree.children(node);
    std::optional<NodeId> accepted;
    if (children.count > 0) {
      const std::span<double> q = q_row(node);
      require(q.size() <= residual.size(), "verification: q has more columns than p");
      Siblings siblings(residual, q);
      const auto tokens = tree.tokens().subspan(static_cast<std::size_t>(children.first));
      for (std::size_t k = 0; k < static_cast<std::size_t>(children.count) && !accepted; ++k) {
        const NodeId child = children.first + static_cast<NodeId>(k);
        if (choices.accept(child, siblings.chance(tokens[k])))
          accepted = child;
        else
          siblings.refuse(tokens.first(k + 1));
      }
    }
    if (!accepted) {
      verdict.next = choices.draw(node, residual);
      return verdict;
    }
    verdict.path.push_back(*accepted);
  }
}

}  // namespace canopy
