#pragma once
#include <functional>
#include <map>
#include <vector>

#include "src/speculation/growers/grower.h"

namespace canopy {

/// The tokens of highest probability, best first, of equal ones the lower; none of probability 0.
std::vector<TokenId> best_tokens(std::span<const float> row, int count);

/// Grows a graph of the draft's tokens: nodes that end with the same tokens share what follows
/// them, and nodes that the draft thinks little of are not gone on from. finish() unfolds the graph
/// into the tree that is verified.
///
/// A level's nodes have tokens of their rows for children. Of these, in breadth-first order: one
/// with a probability below `least`, or below `least_of_siblings` times its best sibling's, stays a
/// leaf; one whose last `merge` tokens (the committed text before the root counts) ended an earlier
/// node that is gone on from is merged into that, if that is no ancestor and no cycle arises; any
/// other is run in the next level. Merged nodes are run once, so that their copies' rows are those
/// of another path: any children are exact where the target's own sample decides. Source:
/// "Graph-Structured Speculative Decoding", 4 and App. A: GSD; without merging TSD; with one child
/// SSD.
///
/// With Growth::within_level nodes are merged within a level alone, whose children nobody has seen
/// yet, and the tree is unfolded level by level while the graph grows: no token that was drawn
/// decides whether it is kept. So children may be drawn from q, never one twice, and be verified by
/// Sequoia's rule with the row that they were drawn from (docs/math.md, "Graphs of a draft's best
/// tokens").
class GraphGrower final : public Grower {
 public:
  struct Limits {
    int nodes = 1;   // of the tree, its root included
    int widest = 1;  // nodes of a level that are run, the likeliest by the product of q
    int run = 1;     // nodes that are run in all, the root included
  };
  /// The tokens of a node's children, from its row; `run`: its number among the nodes that were
  /// run.
  using Propose = std::function<std::vector<TokenId>(std::span<const float> row, int run)>;
  /// `text`: what is committed, its last token being the root. Without `propose` children are the
  /// Growth::children best tokens.
  GraphGrower(std::span<const TokenId> text, const Growth& growth, const Limits& limits,
              Propose propose = {});
  std::vector<DraftedNode> take(std::span<const DraftedRow> rows) override;
  /// The tree of at most Limits::nodes nodes, the likeliest by the product of q (within a level
  /// those of the likeliest parents); copies have positions of their own and were never run.
  GrownTree finish() override;

 private:
  struct Node {
    TokenId token = 0;
    int parent = -1;
    double q = 1, reach = 1;  // of the token; of the path, their product
    int depth = 0;
    int run = -1;     // its number among the nodes that were run
    int merged = -1;  // into this node
    std::vector<int> children = {};
  };
  struct Unfolded {  // a node of the tree to be
    int node;        // of the graph
    int parent;      // of the tree, as unfolded_ counts
    double reach;
    bool copy;
  };
  std::vector<int> add_children(int parent, std::span<const float> row);
  std::vector<TokenId> last_tokens(int node) const;
  bool reaches(int from, int to) const;
  /// True if it is to be run: neither a leaf nor merged, which it is from now on.
  bool goes_on(int node, double best_sibling);
  /// The node whose children serve this one: itself, or what it is merged into.
  int original(int node) const;
  void narrow_frontier();
  /// Hangs into the tree, below the likeliest of its last level first, what fits of their children.
  void unfold_level();
  void unfold_best();

  Growth growth_;
  Limits limits_;
  std::vector<TokenId> before_;  // the root, as many as are compared: the end of the text
  std::vector<Node> nodes_;
  std::vector<int> frontier_;                  // nodes whose rows come next
  std::map<std::vector<TokenId>, int> first_;  // by their last tokens, the first that went on
  Propose propose_;
  std::vector<Unfolded> unfolded_;  // parents before children
  std::size_t last_level_ = 0;      // within levels: where the tree's last one begins
  int runs_ = 1, level_ = 0;
};

}  // namespace canopy
