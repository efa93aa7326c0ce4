#include "src/speculation/rules/inexact_rule.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

#include "src/base/error.h"

namespace canopy {

namespace {

std::span<double> normalised(const LendRow& lend, NodeId node) {
  const std::span<double> row = lend(node);
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  require(std::isfinite(sum) && sum > 0,
          "verification: a row of the target is not one of probabilities");
  for (double& value : row) value /= sum;
  return row;
}

TokenId likeliest(std::span<const double> row) {
  return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

double chance_of(std::span<const double> row, TokenId token) {
  const auto at = static_cast<std::size_t>(token);
  require(token >= 0 && at < row.size(),
          "verification: the tree has a token that the target has not");
  return row[at];
}

/// The target's own token after a node: full p, no residual.
TokenId own_token(const InexactRows& rows, NodeId node, Choices& choices) {
  if (rows.greedy) return likeliest(normalised(rows.plain, node));
  return choices.draw(node, normalised(rows.p, node));
}

std::optional<NodeId> only_child(const TokenTree& tree, NodeId node) {
  const TokenTree::Range children = tree.children(node);
  require(children.count <= 1, "verification: this rule is for chains");
  return children.count == 0 ? std::nullopt : std::optional(children.first);
}

/// The first child that is nearly as likely as the likeliest token, in draft order.
Verdict follow_leniently(const TokenTree& tree, double lenience, const LendRow& plain) {
  Verdict verdict{{0}, 0};
  while (true) {
    const NodeId node = verdict.path.back();
    const std::span<double> row = normalised(plain, node);
    const TokenTree::Range children = tree.children(node);
    verdict.next = likeliest(row);
    const double least = lenience * chance_of(row, verdict.next);
    NodeId child = children.first;
    const NodeId end = children.first + children.count;
    // At l = 1 the likeliest token alone passes, also where another is equally likely.
    const auto passes = [&](TokenId token) {
      return lenience < 1 ? chance_of(row, token) >= least : token == verdict.next;
    };
    while (child < end && !passes(tree.token(child))) ++child;
    if (child == end) return verdict;
    verdict.path.push_back(child);
  }
}

Verdict roll_back(const TokenTree& tree, double most, const InexactRows& rows, Choices& choices) {
  Verdict verdict{{0}, 0};
  while (const auto child = only_child(tree, verdict.path.back())) {
    const double p = chance_of(normalised(rows.plain, verdict.path.back()), tree.token(*child));
    if (-std::log(p) > most) break;
    verdict.path.push_back(*child);
  }
  verdict.next = own_token(rows, verdict.path.back(), choices);
  return verdict;
}

/// The path to the first of the deepest of these nodes, which hang below each other, and the token
/// after it.
Verdict longest_path(const TokenTree& tree, std::span<const NodeId> kept, const InexactRows& rows,
                     Choices& choices) {
  NodeId deepest = 0;
  for (const NodeId node : kept)
    if (tree.depth(node) > tree.depth(deepest)) deepest = node;
  Verdict verdict;
  for (NodeId node = deepest; node >= 0; node = tree.parent(node))
    verdict.path.insert(verdict.path.begin(), node);
  verdict.next = own_token(rows, deepest, choices);
  return verdict;
}

Verdict longest_typical(const TokenTree& tree, const InexactRule& rule, const InexactRows& rows,
                        Choices& choices) {
  std::vector<NodeId> kept{0};
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const TokenTree::Range children = tree.children(kept[i]);
    if (children.count == 0) continue;
    const std::span<const double> row = normalised(rows.greedy ? rows.plain : rows.p, kept[i]);
    double entropy = 0;
    for (const double p : row) entropy -= p > 0 ? p * std::log(p) : 0;
    const double least = std::min(rule.threshold, rule.scale * std::exp(-entropy));
    for (NodeId child = children.first; child < children.first + children.count; ++child)
      if (chance_of(row, tree.token(child)) > least) kept.push_back(child);
  }
  return longest_path(tree, kept, rows, choices);
}

/// Every node is tried that hangs below kept ones; of the deepest kept nodes the first.
Verdict longest_of_kept(const TokenTree& tree, const InexactRows& rows, Choices& choices) {
  if (rows.greedy)
    return follow_samples(tree,
                          [&](NodeId node) { return likeliest(normalised(rows.plain, node)); });
  require(rows.log_q.size() == static_cast<std::size_t>(tree.size()),
          "verification: a ratio needs the draft's probability of each token");
  std::vector<NodeId> kept{0};
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const TokenTree::Range children = tree.children(kept[i]);
    if (children.count == 0) continue;
    const std::span<const double> row = normalised(rows.p, kept[i]);
    for (NodeId child = children.first; child < children.first + children.count; ++child) {
      const double q = std::exp(rows.log_q[static_cast<std::size_t>(child)]);
      if (choices.accept(child, chance_of(row, tree.token(child)) / q)) kept.push_back(child);
    }
  }
  return longest_path(tree, kept, rows, choices);
}

Verdict longest_joint(const TokenTree& tree, double tau, const InexactRows& rows,
                      Choices& choices) {
  require(rows.log_q.size() == static_cast<std::size_t>(tree.size()),
          "verification: a joint threshold needs the draft's probability of each token");
  std::vector<NodeId> chain{0};
  std::size_t longest = 0;
  double log_ratio = 0;
  while (const auto child = only_child(tree, chain.back())) {
    const LendRow& p = rows.greedy ? rows.plain : rows.p;
    log_ratio += std::log(chance_of(normalised(p, chain.back()), tree.token(*child))) -
                 rows.log_q[static_cast<std::size_t>(*child)];
    chain.push_back(*child);
    if (std::min(1.0, std::exp(log_ratio)) > tau) longest = chain.size() - 1;
  }
  chain.resize(longest + 1);
  const TokenId next = own_token(rows, chain.back(), choices);
  return {std::move(chain), next};
}

}  // namespace

std::string in_words(const InexactRule& rule) {
  char number[32], scale[32];
  std::snprintf(number, sizeof number, "%g", rule.threshold);
  std::snprintf(scale, sizeof scale, "%g", rule.scale);
  switch (rule.kind) {
    case InexactRule::Kind::kLenience:
      return std::string("lenience ") + number +
             ": a drafted token is kept up to 1/l times as often as the model would write it";
    case InexactRule::Kind::kRatio:
      return "ratio: of all paths whose tokens were each kept with chance min(1, p/q) the longest";
    case InexactRule::Kind::kRollback:
      return std::string("rollback ") + number +
             ": a drafted token is kept where the model's -ln p of it is at most that";
    case InexactRule::Kind::kTypical:
      return std::string("typical acceptance: of all paths whose tokens each have p > min(") +
             number + ", " + scale + " exp(-entropy)) the longest";
    default:
      return std::string("threshold ") + number +
             ": the longest drafted prefix is kept of which min(1, p/q) jointly exceeds that";
  }
}

Verdict verify_inexactly(const TokenTree& tree, const InexactRule& rule, const InexactRows& rows,
                         Choices& choices) {
  switch (rule.kind) {
    case InexactRule::Kind::kLenience:
      if (rows.greedy) return follow_leniently(tree, rule.threshold, rows.plain);
      return verify_tree(tree, Drawing::kSequoia, rows.p, rows.q, choices, Asking::kFromAbove,
                         rule.threshold);
    case InexactRule::Kind::kRatio:
      return longest_of_kept(tree, rows, choices);
    case InexactRule::Kind::kRollback:
      return roll_back(tree, rule.threshold, rows, choices);
    case InexactRule::Kind::kTypical:
      return longest_typical(tree, rule, rows, choices);
    default:
      return longest_joint(tree, rule.threshold, rows, choices);
  }
}

}  // namespace canopy
