#include "src/speculation/rules/verification_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "src/base/error.h"

namespace canopy {
namespace {

constexpr const char* kWiderDraft = "verification: q has more columns than p";

/// Sums of(0) to of(count - 1), in parts that the compiler makes vectors of: rows are as long as
/// the vocabulary, and each node that is tried takes several sums.
template <class Of>
double sum_of(std::size_t count, const Of& of) {
  constexpr std::size_t kParts = 8;
  std::array<double, kParts> part{};
  std::size_t t = 0;
  for (; t + kParts <= count; t += kParts)
    for (std::size_t k = 0; k < kParts; ++k) part[k] += of(t + k);
  for (; t < count; ++t) part[0] += of(t);
  return std::accumulate(part.begin(), part.end(), 0.0);
}

double sum(std::span<const double> x) {
  return sum_of(x.size(), [x](std::size_t t) { return x[t]; });
}

void divide(std::span<double> x, double by) {
  const double times = 1 / by;
  for (double& value : x) value *= times;
}

void normalise(std::span<double> target) {
  const double total = sum(target);
  require(std::isfinite(total) && total > 0,
          "verification: a row of the target is not one of probabilities");
  divide(target, total);
}

/// The children of one node, tried in order: R, what the target still owes, and D, what the next
/// child was drawn from. Both sum to 1. A child x is accepted with chance w R(x) / (rho D(x)),
/// where w is the weight that the node has left, and rho is 1 but for k-sequential selection.
class Siblings {
 public:
  Siblings(Drawing drawing, std::size_t count, std::span<double> p, std::span<double> q,
           double weight, double lenience = 1)
      : drawing_(drawing),
        count_(count),
        lenience_(lenience),
        residual_(p),
        draft_(q),
        weight_(weight) {
    support_ = std::count_if(q.begin(), q.end(), [](double value) { return value > 0; });
    divide(draft_, sum(draft_));
    if (drawing == Drawing::kSpecTr) division_ = smallest_division();
  }

  double chance(TokenId token) const {
    const auto at = static_cast<std::size_t>(token);
    if (token < 0 || at >= draft_.size() || !(draft_[at] > 0))
      throw Error("verification: token " + std::to_string(token) +
                  " has no draft probability: q is not what drew this tree");
    if (lenience_ == 0) return 1;
    return weight_ * residual_[at] / (lenience_ * division_ * draft_[at]);
  }

  /// The last of `refused` was just refused, the others before it.
  void refuse(std::span<const TokenId> refused) {
    if (drawing_ == Drawing::kSpecTr) {  // judges all children by the same R
      if (refused.size() == count_) owe_the_rest(expected_tries(accepted_by_one(division_)));
      return;
    }
    owe_the_rest(1);
    if (drawing_ == Drawing::kSequoia) take_out(refused);
  }

  /// The chance that the node is accepted now, with what was refused below it.
  double weight() const { return weight_; }

 private:
  /// R <- norm(w R - times min(D, w R / rho)), and w <- what that sums to, over the chance of the
  /// refusal. Where nothing is left and w is 1, a refusal had a chance of about 1e-16 a token: R
  /// and w stay, which errs by no more than that.
  void owe_the_rest(double times) {
    const double weight = weight_, share = 1 / division_;
    double* const residual = residual_.data();
    const double* const draft = draft_.data();
    const auto rest = [=](std::size_t t) {
      const double owed = weight * residual[t];
      return std::max(owed - times * std::min(draft[t], owed * share), 0.0);
    };
    const double left =
        weight * sum(residual_.subspan(draft_.size())) + sum_of(draft_.size(), rest);
    if (!(left > std::numeric_limits<double>::min())) {
      if (weight_ < 1) weight_ = 0;
      return;
    }
    const double by = 1 / left;
    for (std::size_t t = 0; t < draft_.size(); ++t) residual[t] = rest(t) * by;
    for (double& value : residual_.subspan(draft_.size())) value *= weight * by;
    if (weight_ < 1) weight_ = left / (left + 1 - weight_);
  }

  /// D <- D without the last of `drawn`, or uniform over the tokens not yet drawn.
  void take_out(std::span<const TokenId> drawn) {
    draft_[static_cast<std::size_t>(drawn.back())] = 0;
    // Counted by token: a sum of floats need not reach 0 when the support is used up.
    if (--support_ == 0) {
      std::fill(draft_.begin(), draft_.end(), 1.0);
      for (const TokenId token : drawn) draft_[static_cast<std::size_t>(token)] = 0;
      support_ = static_cast<std::ptrdiff_t>(draft_.size() - drawn.size());
    }
    if (support_ > 0) divide(draft_, sum(draft_));
  }

  /// beta: the chance that one child is accepted when it is tried.
  double accepted_by_one(double division) const {
    double beta = 0;
    for (std::size_t t = 0; t < draft_.size(); ++t)
      beta += std::min(draft_[t], residual_[t] / division);
    return std::min(beta, 1.0);
  }
  /// (1 - (1 - beta)^k) / beta, for beta 0 too: how many of the k children are tried on average.
  double expected_tries(double beta) const {
    double tries = 0, reached = 1;
    for (std::size_t k = 0; k < count_; ++k, reached *= 1 - beta) tries += reached;
    return tries;
  }
  /// The smallest rho that leaves no residual negative (docs/math.md, S3), to a millionth from
  /// above: a larger one is exact too and accepts hardly less.
  double smallest_division() const {
    double too_small = 1, enough = static_cast<double>(count_);
    while (enough - too_small > 1e-6 * too_small) {
      const double middle = (too_small + enough) / 2;
      (expected_tries(accepted_by_one(middle)) <= middle ? enough : too_small) = middle;
    }
    return enough;
  }

  Drawing drawing_;
  std::size_t count_;
  double lenience_;
  std::span<double> residual_, draft_;
  double weight_;
  std::ptrdiff_t support_ = 0;
  double division_ = 1;  // rho
};

/// Goes from the root down. visit(node, next) names the child to go to, or none and sets the last
/// token.
template <class Visit>
Verdict walk(const Visit& visit) {
  Verdict verdict{{0}, 0};
  while (const std::optional<NodeId> child = visit(verdict.path.back(), verdict.next))
    verdict.path.push_back(*child);
  return verdict;
}

/// Refuses and owes from below: a node is asked when all that hangs below it was refused. What is
/// owed for a subtree that is refused is known when its node is come to, as a node's chance is that
/// of its whole subtree, so each inner node's rows are read once, on the way down.
class FromBelow {
 public:
  FromBelow(const TokenTree& tree, Drawing drawing, const LendRow& p_row, const LendRow& q_row,
            Choices& choices)
      : tree_(tree), drawing_(drawing), p_row_(p_row), q_row_(q_row), choices_(choices) {}

  Verdict verify() {
    visit(0, 1);
    return std::move(verdict_);
  }

 private:
  struct Judged {
    std::vector<double> children;  // the chances of those that can be come to
    double weight = 1;             // of the node after them
  };

  /// Leaves what the target owes after all children in `owed_`.
  Judged judge(NodeId node, double weight) {
    owed_ = p_row_(node);
    owed_of_ = node;
    const TokenTree::Range children = tree_.children(node);
    Judged judged{{}, weight};
    if (children.count == 0) return judged;
    const auto count = static_cast<std::size_t>(children.count);
    const auto tokens = tree_.tokens().subspan(static_cast<std::size_t>(children.first), count);
    const std::span<double> q = q_row_(node);
    require(q.size() <= owed_.size(), kWiderDraft);
    Siblings siblings(drawing_, count, owed_, q, weight);
    for (std::size_t k = 0; k < count; ++k) {
      judged.children.push_back(std::min(siblings.chance(tokens[k]), 1.0));
      if (judged.children.back() == 1) break;  // nothing after it is asked
      siblings.refuse(tokens.first(k + 1));
    }
    judged.weight = siblings.weight();
    return judged;
  }

  /// Accepts the node, or one below it, with this chance over what may have been drawn below it.
  bool visit(NodeId node, double weight) {
    Judged judged{{}, weight};
    if (tree_.children(node).count > 0) judged = judge(node, weight);
    for (std::size_t k = 0; k < judged.children.size(); ++k) {
      const NodeId child = tree_.children(node).first + static_cast<NodeId>(k);
      if (judged.children[k] > 0 && visit(child, judged.children[k])) return true;
    }
    if (node != 0 && !choices_.accept(node, judged.weight)) return false;
    if (owed_of_ != node) judge(node, weight);  // the rows of others have taken its place
    verdict_.next = choices_.draw(node, owed_);
    for (NodeId on = node; on >= 0; on = tree_.parent(on)) verdict_.path.push_back(on);
    std::reverse(verdict_.path.begin(), verdict_.path.end());
    return true;
  }

  const TokenTree& tree_;
  Drawing drawing_;
  const LendRow& p_row_;
  const LendRow& q_row_;
  Choices& choices_;
  std::span<double> owed_;
  NodeId owed_of_ = -1;
  Verdict verdict_;
};

}  // namespace

Verdict follow_samples(const TokenTree& tree, const std::function<TokenId(NodeId)>& sample) {
  return walk([&](NodeId node, TokenId& next) -> std::optional<NodeId> {
    next = sample(node);
    const TokenTree::Range children = tree.children(node);
    for (NodeId child = children.first; child < children.first + children.count; ++child)
      if (tree.token(child) == next) return child;
    return std::nullopt;
  });
}

Verdict verify_tree(const TokenTree& tree, Drawing drawing, const LendRow& p_row,
                    const LendRow& q_row, Choices& choices, Asking asking, double lenience) {
  require(lenience == 1 || (drawing == Drawing::kSequoia && asking == Asking::kFromAbove),
          "verification: only children of Sequoia's drawing are judged leniently, from above");
  const LendRow target = [&](NodeId node) {
    const std::span<double> p = p_row(node);
    normalise(p);
    return p;
  };
  if (target_decides(drawing))
    return follow_samples(tree, [&](NodeId node) { return choices.draw(node, target(node)); });
  if (asking == Asking::kFromBelow && refuses_and_owes(drawing))
    return FromBelow(tree, drawing, target, q_row, choices).verify();

  return walk([&](NodeId node, TokenId& next) -> std::optional<NodeId> {
    const std::span<double> residual = target(node);
    const TokenTree::Range children = tree.children(node);
    if (children.count > 0) {
      const auto count = static_cast<std::size_t>(children.count);
      const auto tokens = tree.tokens().subspan(static_cast<std::size_t>(children.first), count);
      const std::span<double> q = q_row(node);
      require(q.size() <= residual.size(), kWiderDraft);
      Siblings siblings(drawing, count, residual, q, 1, lenience);
      for (std::size_t k = 0; k < count; ++k) {
        const NodeId child = children.first + static_cast<NodeId>(k);
        if (choices.accept(child, siblings.chance(tokens[k]))) return child;
        siblings.refuse(tokens.first(k + 1));
      }
    }
    next = choices.draw(node, residual);
    return std::nullopt;
  });
}

double overlap(std::span<const double> p, std::span<const double> q) {
  const double of_p = sum(p), of_q = sum(q);
  double common = 0;
  for (std::size_t t = 0; t < std::min(p.size(), q.size()); ++t)
    common += std::min(p[t] / of_p, q[t] / of_q);
  return common;
}

SiblingChances sibling_chances(Drawing drawing, std::span<const TokenId> children,
                               std::span<double> p, std::span<double> q, double weight) {
  normalise(p);
  SiblingChances chances{std::vector<double>(children.size(), 0.0), 1};
  if (children.empty()) return chances;
  if (target_decides(drawing)) {
    for (std::size_t k = 0; k < children.size(); ++k)  // of equal children the first is taken
      chances.accept[k] = std::exchange(p[static_cast<std::size_t>(children[k])], 0.0);
    chances.none = sum(p);
    if (chances.none > 0) divide(p, chances.none);
    return chances;
  }
  require(q.size() <= p.size(), kWiderDraft);
  Siblings siblings(drawing, children.size(), p, q, weight);
  for (std::size_t k = 0; k < children.size() && chances.none > 0; ++k) {
    const double yes = std::min(siblings.chance(children[k]), 1.0);
    chances.accept[k] = chances.none * yes;
    chances.none *= 1 - yes;
    if (chances.none > 0) siblings.refuse(children.first(k + 1));
  }
  return chances;
}

}  // namespace canopy
