#include "src/speculation/token_tree.h"

#include "src/base/error.h"

namespace canopy {

std::vector<std::uint64_t> ancestor_bits(std::span<const NodeId> parents, int first, int count) {
  const auto begin = static_cast<std::size_t>(first), rows = static_cast<std::size_t>(count);
  const std::size_t words = (begin + rows + 63) / 64;
  std::vector<std::uint64_t> bits(rows * words, 0);
  for (std::size_t i = 0; i < rows; ++i)
    for (auto node = static_cast<NodeId>(begin + i); node >= 0;
         node = parents[static_cast<std::size_t>(node)]) {
      const auto j = static_cast<std::size_t>(node);
      bits[i * words + j / 64] |= std::uint64_t{1} << (j % 64);
    }
  return bits;
}

TokenTree::Range TokenTree::add_children(NodeId parent, std::span<const TokenId> tokens) {
  require(parent >= 0 && parent < size(), "token tree: no such parent");
  const auto at = static_cast<std::size_t>(parent);
  require(children_[at].count == 0, "token tree: the children of a node are added once, together");
  const Range added{static_cast<NodeId>(size()), static_cast<int>(tokens.size())};
  children_[at] = added;
  const int depth = depth_[at] + 1;
  for (const TokenId token : tokens) {
    token_.push_back(token);
    parent_.push_back(parent);
    depth_.push_back(depth);
    children_.push_back({0, 0});
  }
  return added;
}

}  // namespace canopy
