#include "src/grammar/words.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace canopy::grammar {
namespace {

/// The words by their common beginnings. A child has a larger index than its parent.
struct Trie {
  struct Node {
    std::map<std::uint8_t, std::size_t> children;
    bool ends = false;
  };
  std::vector<Node> nodes{1};

  explicit Trie(std::span<const std::string> words) {
    for (const std::string& word : words) {
      std::size_t at = 0;
      for (const char c : word) {
        const auto [child, is_new] =
            nodes[at].children.try_emplace(static_cast<std::uint8_t>(c), nodes.size());
        at = child->second;
        if (is_new) nodes.emplace_back();
      }
      nodes[at].ends = true;
    }
  }
};

/// The parts of `edge` that lead to no child.
void add_without(std::vector<Edge>& edges, Edge edge,
                 const std::map<std::uint8_t, std::size_t>& children) {
  int first = edge.first;
  for (const auto& [byte, child] : children) {
    if (byte < first || byte > edge.last) continue;
    if (byte > first)
      edges.push_back({static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(byte - 1),
                       edge.count, edge.to});
    first = byte + 1;
  }
  if (first <= edge.last)
    edges.push_back({static_cast<std::uint8_t>(first), edge.last, edge.count, edge.to});
}

const Edge* find(std::span<const Edge> edges, std::uint8_t byte) {
  for (const Edge& edge : edges)
    if (edge.first <= byte && byte <= edge.last) return &edge;
  return nullptr;
}

}  // namespace

StateId add_words(Automaton& automaton, std::span<const std::string> words, StateId to) {
  const Trie trie(words);
  std::vector<StateId> states(trie.nodes.size(), Automaton::kDead);
  for (std::size_t i = trie.nodes.size(); i-- > 0;) {
    std::vector<Edge> edges;
    for (const auto& [byte, child] : trie.nodes[i].children)
      edges.push_back({byte, byte, Count::kNone, states[child]});
    states[i] = automaton.fork(trie.nodes[i].ends ? to : Automaton::kDead, automaton.bytes(edges));
  }
  return states[0];
}

StateId add_other_keys(Automaton& automaton, std::span<const std::string> keys, StateId text) {
  std::vector<std::string> spelled;
  for (const std::string& key : keys) {
    // Additional keys have no escapes, so they cannot be one that needs some.
    const bool plain = key.find_first_of("\"\\") == std::string::npos &&
                       std::ranges::none_of(key, [](char c) { return c >= 0 && c < 0x20; });
    if (plain) spelled.push_back(key);
  }
  if (spelled.empty()) return text;
  const Trie trie(spelled);
  // Holds, for each node, the state that `text` would be in after the same bytes.
  std::vector<StateId> beside(trie.nodes.size(), Automaton::kDead);
  beside[0] = text;
  for (std::size_t i = 0; i < trie.nodes.size(); ++i) {
    const auto edges = automaton.edges(automaton[beside[i]]);
    for (const auto& [byte, child] : trie.nodes[i].children)
      if (const Edge* edge = find(edges, byte)) beside[child] = edge->to;
  }
  std::vector<StateId> states(trie.nodes.size(), Automaton::kDead);
  for (std::size_t i = trie.nodes.size(); i-- > 0;) {
    const Trie::Node& node = trie.nodes[i];
    std::vector<Edge> edges;
    for (const Edge& edge : automaton.edges(automaton[beside[i]]))
      if (!(node.ends && edge.to == Automaton::kReturn)) add_without(edges, edge, node.children);
    for (const auto& [byte, child] : node.children)
      edges.push_back({byte, byte, Count::kNone, states[child]});
    states[i] = automaton.bytes(edges);
  }
  return states[0];
}

}  // namespace canopy::grammar
