#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "planner/calibrated/chance.h"
#include "src/base/types.h"
#include "src/speculation/token_tree.h"

namespace canopy {

/// Rule that ends a draft model's tree before the planned shape does. Plain data.
struct Growth {
  enum class Kind : std::uint8_t {
    kShape,       // nothing: each tree has the shape
    kReach,       // a chain ends before a token that is too unlikely to be reached
    kConfidence,  // a chain ends before a token of which the draft is not sure
    kGraph,       // a graph of the draft's best tokens, see GraphGrower
    kBeams,       // the likeliest chain that a beam search finds
    kHierarchy,   // a chain whose tokens a second draft guesses
    kValued,      // the draft's best tokens by a calibrated chance, see ValuedGrower; only of texts
                  // for which the target's own sample decides
  };
  Kind kind = Kind::kShape;
  double bound = 0;  // kReach: the least chance of being reached; kConfidence: the least confidence
  int children = 4, steps = 10;  // kGraph: of a node, levels that the draft runs
  double least = 0.2, least_of_siblings = 0.3;
  int merge = 2;  // tokens that make two nodes one; 0: none
  // Nodes are merged within their level alone, before either has children: see GraphGrower.
  bool within_level = false;
  int beams = 8;      // kBeams
  int guesses = 4;    // kHierarchy: at a time
  int forwards = 32;  // kValued: of the draft, the root's aside, at most
  bool operator==(const Growth&) const = default;
};

/// A node that a draft model is to run.
struct DraftedNode {
  TokenId token = 0;
  int parent = -1;  // its number among the nodes that were run; the root is number 0
};

/// Tree that a grower has made of a text.
struct GrownTree {
  TokenTree tree;
  /// Per node: its number among the nodes that were run, which is its scratch slot; -1: never run.
  std::vector<std::int32_t> run;
  std::vector<double> log_q = {};  // per node, of its token; empty where nobody asks for it
  std::vector<bool> copied = {};   // per node: it stands for another that was run; empty: none
  /// Per node: whose row its children come from, as `run` counts; -1: nobody's. Empty: its own.
  std::vector<std::int32_t> row = {};
};

/// The draft's best tokens at a node that was run, best first, and what chances depend on.
struct BestTokens {
  std::vector<TokenId> tokens;
  RowOfBest row;
};

/// The probabilities of a node that was run. Shapes: [tokens that both models know] f32.
struct DraftedRow {
  std::span<const float> drawn;      // what its children are drawn from; at temperature 0 as judged
  std::span<const float> judged;     // what says how sure the draft is
  const BestTokens* best = nullptr;  // kValued: in place of both
};

/// Grows one tree from the rows of the nodes that it asks for. It knows neither models nor devices:
/// tests drive it by tables. Used for one tree.
class Grower {
 public:
  virtual ~Grower() = default;
  /// The rows of the nodes that were asked for last, in their order; at first the root's. Returns
  /// those to run next, parents before children; none: the tree is done.
  virtual std::vector<DraftedNode> take(std::span<const DraftedRow> rows) = 0;
  virtual GrownTree finish() = 0;
  /// Probabilities that the draft gave a chain's tokens, by the row of each; else empty.
  virtual std::span<const double> confidences() const { return {}; }
};

}  // namespace canopy
