#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace canopy::grammar {

/// Words by their common beginnings: nodes in the order of their bytes, each before those below it.
/// Node 0 is the empty beginning.
struct ByteTrie {
  struct Node {
    std::uint8_t byte = 0;
    std::uint32_t depth = 0;       // bytes up to here
    std::uint32_t behind = 0;      // the first node that is not below this one
    std::uint32_t first_word = 0;  // words [first_word, own_end) end here,
    std::uint32_t own_end = 0;     // [own_end, end) further below
    std::uint32_t end = 0;
  };
  std::vector<Node> nodes;
  std::uint32_t depth = 0;  // of the deepest

  ByteTrie() = default;
  /// `words` in their order by unsigned bytes; some may be equal.
  explicit ByteTrie(std::span<const std::string_view> words);
};

}  // namespace canopy::grammar
