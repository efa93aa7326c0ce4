#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "src/speculation/rules/verification_rule.h"

namespace canopy {

/// Rule that keeps more of a draft than the target's own distribution would: a user asks for it by
/// name, and every report says so. Pure rules over the same trees, rows and choices as verify_tree;
/// none is a Drawing, as those are pairs with a proof. Plain data.
struct InexactRule {
  enum class Kind : std::uint8_t {
    kLenience,  // a token is kept with chance p / (l q) instead of p / q; at temperature 0, where
                // p(x) >= l max p. Source: arXiv:2211.17192, A.5
    kRollback,  // a token is kept where the target's -ln p of it is at most b. Source: BiLD,
                // arXiv:2302.07863
    kRatio,     // of all paths whose every token was kept with chance min(1, p / q) the longest.
                // Source: "Graph-Structured Speculative Decoding", 3 and 4.1
    kJoint,     // the longest prefix of which min(1, p / q) jointly exceeds tau. Source:
                // "Optimized Multi-Token Joint Decoding ..." (MTAD), Section 4
    kTypical,   // of all paths whose tokens each have p > min(e, d exp(-H(p))), H the entropy, the
                // longest. Source: arXiv:2401.10774, 2.3.1
  };
  Kind kind = Kind::kLenience;
  double threshold = 1;  // l, b, tau or e
  double scale = 0;      // kTypical: d
  bool operator==(const InexactRule&) const = default;
};

/// The rule and its threshold, for a report.
std::string in_words(const InexactRule& rule);

/// The rows that a rule is judged by, each lent for one node at a time.
struct InexactRows {
  LendRow plain;        // softmax of the target's logits at temperature 1, nothing cut off
  LendRow p;            // after Sampling's warp, where the temperature is above 0
  LendRow q;            // kLenience: what the node's children were drawn from
  bool greedy = false;  // temperature 0: every token is the row's likeliest
  std::span<const double> log_q =
      {};  // kJoint, kRatio: per node, ln q of its token; the root's is 0
};

/// The path that the rule keeps, and the token after it: drawn from p as it is, or the likeliest,
/// but for kLenience, whose last token comes from what the rule leaves of p. kRollback and kJoint
/// want chains; kRatio at temperature 0 is exact; kTypical there goes by plain. p and plain are
/// asked for the nodes of the path and, where it goes on, for none below the first that is refused
/// (kJoint: for the whole chain). Throws Error like verify_tree.
Verdict verify_inexactly(const TokenTree& tree, const InexactRule& rule, const InexactRows& rows,
                         Choices& choices);

}  // namespace canopy
