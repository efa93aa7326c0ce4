#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/grammar/machine.h"
#include "src/grammar/vocabulary_trie.h"

namespace canopy::grammar {

/// Finds the tokens that may follow a text: walks the trie of the vocabulary and the automaton
/// together. Inside of strings, which most tokens may go on, it takes what the trie knows of each
/// token instead. One thread at a time.
class MaskWalk {
 public:
  MaskWalk(Machine& machine, const VocabularyTrie& vocabulary);

  /// Sets the bits of the tokens with bytes that may follow. Leaves the stack as it is.
  void fill(const Readings& readings, Stack& stack, std::span<std::uint32_t> allowed);

 private:
  void take_strings(std::uint32_t node, Readings& readings, Stack& stack,
                    std::span<std::uint32_t> allowed);
  void go_on_inside(std::uint32_t node, const Reading& reading, std::span<std::uint32_t> allowed);
  void close(std::uint32_t node, const Reading& reading, Stack& stack,
             std::span<std::uint32_t> allowed);
  void find_rests(const Reading& reading, Stack& stack);
  template <class Visit>
  void walk(const ByteTrie& trie, std::vector<Readings>& levels, Stack& stack, Visit&& visit);

  Machine& machine_;
  const VocabularyTrie& vocabulary_;
  std::vector<Readings> levels_, rest_levels_;  // by depth in the trie
  std::vector<std::uint8_t> rests_;  // set for nodes of rests() that may follow the quote
  Reading rests_of_;                 // the string that `rests_` was found for,
  bool rests_known_ = false;         // if any
  std::size_t given_frames_ = 0;
};

}  // namespace canopy::grammar
