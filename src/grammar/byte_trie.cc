#include "src/grammar/byte_trie.h"

#include <algorithm>

namespace canopy::grammar {

ByteTrie::ByteTrie(std::span<const std::string_view> words) : nodes(1) {
  std::vector<std::uint32_t> path{0};  // the nodes of the previous word
  const auto close_to = [&](std::size_t kept, std::uint32_t word) {
    for (; path.size() > kept; path.pop_back()) {
      nodes[path.back()].behind = static_cast<std::uint32_t>(nodes.size());
      nodes[path.back()].end = word;
    }
  };
  std::string_view previous;
  for (std::uint32_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const auto common =
        static_cast<std::size_t>(std::ranges::mismatch(previous, word).in1 - previous.begin());
    close_to(common + 1, i);
    for (std::size_t at = common; at < word.size(); ++at) {
      path.push_back(static_cast<std::uint32_t>(nodes.size()));
      nodes.push_back({.byte = static_cast<std::uint8_t>(word[at]),
                       .depth = static_cast<std::uint32_t>(at + 1),
                       .first_word = i,
                       .own_end = i});
    }
    nodes[path.back()].own_end = i + 1;
    depth = std::max(depth, static_cast<std::uint32_t>(word.size()));
    previous = word;
  }
  close_to(0, static_cast<std::uint32_t>(words.size()));
}

}  // namespace canopy::grammar
