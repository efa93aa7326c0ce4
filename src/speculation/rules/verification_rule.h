#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/speculation/logits/drawing.h"
#include "src/speculation/token_tree.h"

namespace canopy {

/// The outcome of a step: the root, the accepted nodes below it, and one token drawn
/// from the target. The root was already shown, so a step yields path.size() new tokens.
struct Verdict {
  std::vector<NodeId> path;  // starts with node 0
  TokenId next = 0;          // becomes the next root
};

/// The random choices of a rule, made elsewhere, so that tests can enumerate every outcome.
/// Each (function, node) is asked at most once in a walk.
class Choices {
 public:
  virtual ~Choices() = default;
  /// True with this chance; a chance of 0 never, of 1 or more always.
  virtual bool accept(NodeId child, double chance) = 0;
  /// A token drawn from p, which sums to 1; never one of p = 0.
  virtual TokenId draw(NodeId node, std::span<const double> p) = 0;
};

/// Follows the target's own sample at each node for as long as a child carries it (the first that
/// does). Exact for any tree whose children do not depend on that sample.
Verdict follow_samples(const TokenTree& tree, const std::function<TokenId(NodeId)>& sample);

/// A row of probabilities for a node, lent to the rule, which overwrites it.
using LendRow = std::function<std::span<double>(NodeId)>;

/// Order in which a rule that refuses and owes asks a node and those below it. From below more is
/// accepted, but what hangs below siblings must have been drawn independently: no subtree may stand
/// for another. k-sequential selection always asks from above.
enum class Asking : std::uint8_t { kFromBelow, kFromAbove };

/// Verifies a tree by the rule of its drawing: the text is distributed exactly as if sampled from
/// the target alone (docs/math.md, "Verification"). p is asked for visited nodes, q for those of
/// them with children, unless the target decides; neither needs to be normalised. From below the
/// rows of the last node may be asked for twice, those of a leaf if it is accepted. q may have
/// fewer columns than p: the rest counts as 0. `lenience` below 1, from above, accepts a child with
/// chance R / (l D) instead of R / D, at most 1, and keeps the residual: no token is then written
/// more than 1 / l times as often as the target would (docs/math.md, "Lenience"); for Sequoia's
/// drawing alone. Throws Error if q cannot have drawn the tree, or a row of p is not one of
/// probabilities. Source: see Drawing; arXiv:2505.12398, from below.
Verdict verify_tree(const TokenTree& tree, Drawing drawing, const LendRow& p_row,
                    const LendRow& q_row, Choices& choices, Asking asking = Asking::kFromBelow,
                    double lenience = 1);

/// sum_x min(p(x), q(x)) of rows that need not be normalised: the chance that a token drawn from q
/// is accepted by the rejection rule. Source: arXiv:2211.17192, Corollary 3.6.
double overlap(std::span<const double> p, std::span<const double> q);

/// Chances that the rule gives siblings, with none of its choices made.
struct SiblingChances {
  std::vector<double> accept;  // per child: that it is the accepted one, given that its parent was
  double none = 1;             // that none is; then the next token is drawn from what is left of p
};
/// The chances of one node's children, in the order of their drawing. p and q are its rows, as
/// above (q may be empty where the target decides); p is left as the distribution of the token that
/// follows if none is accepted, unless none == 0. Without children that is p itself. `weight`: that
/// of the node, from below, by rules that refuse and owe; with 1 the chances are those from above,
/// too. Throws Error like verify_tree.
SiblingChances sibling_chances(Drawing drawing, std::span<const TokenId> children,
                               std::span<double> p, std::span<double> q, double weight = 1);

}  // namespace canopy
