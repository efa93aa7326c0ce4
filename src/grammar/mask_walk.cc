#include "src/grammar/mask_walk.h"

#include <algorithm>

namespace canopy::grammar {
namespace {

void set(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
}

}  // namespace

MaskWalk::MaskWalk(Machine& machine, const VocabularyTrie& vocabulary)
    : machine_(machine),
      vocabulary_(vocabulary),
      levels_(vocabulary.tokens().depth + 1),
      rest_levels_(vocabulary.rests().depth + 1),
      rests_(vocabulary.rests().nodes.size()) {}

/// Follows the nodes that the automaton allows, levels[0] at node 0. `visit` is called at each; it
/// may take readings from the level, which then are not followed further below.
template <class Visit>
void MaskWalk::walk(const ByteTrie& trie, std::vector<Readings>& levels, Stack& stack,
                    Visit&& visit) {
  std::vector<std::size_t> frames(levels.size());
  visit(0, levels[0]);
  frames[0] = stack.size();
  for (std::uint32_t i = 1; i < trie.nodes.size();) {
    const ByteTrie::Node& node = trie.nodes[i];
    Readings& readings = levels[node.depth];
    stack.resize(frames[node.depth - 1]);
    machine_.step(levels[node.depth - 1], node.byte, stack, readings);
    if (!readings.none()) visit(i, readings);
    frames[node.depth] = stack.size();
    i = readings.open.empty() ? node.behind : i + 1;
  }
}

void MaskWalk::fill(const Readings& readings, Stack& stack, std::span<std::uint32_t> allowed) {
  given_frames_ = stack.size();
  rests_known_ = false;
  levels_[0] = readings;
  const ByteTrie& trie = vocabulary_.tokens();
  walk(trie, levels_, stack, [&](std::uint32_t i, Readings& at) {
    const ByteTrie::Node& node = trie.nodes[i];
    for (std::uint32_t word = node.first_word; word < node.own_end; ++word)
      set(allowed, vocabulary_.words()[word].token);
    if (vocabulary_.inside()[i].between && node.end > node.own_end)
      take_strings(i, at, stack, allowed);
  });
  stack.resize(given_frames_);
}

/// Sets what follows below the node by the readings that are between two characters of a string,
/// and takes these readings away.
void MaskWalk::take_strings(std::uint32_t node, Readings& readings, Stack& stack,
                            std::span<std::uint32_t> allowed) {
  std::erase_if(readings.open, [&](const Reading& reading) {
    if (machine_.text_at(reading.state) == Text::kNone) return false;
    go_on_inside(node, reading, allowed);
    close(node, reading, stack, allowed);
    return true;
  });
}

void MaskWalk::go_on_inside(std::uint32_t node, const Reading& reading,
                            std::span<std::uint32_t> allowed) {
  const ByteTrie::Node& at = vocabulary_.tokens().nodes[node];
  const VocabularyTrie::Inside& inside = vocabulary_.inside()[node];
  const bool is_key = machine_.text_at(reading.state) == Text::kKey;
  if (node == 0 && reading.left >= vocabulary_.longest_token()) {
    const auto& mask = is_key ? vocabulary_.key_mask() : vocabulary_.free_mask();
    for (std::size_t i = 0; i < mask.size(); ++i) allowed[i] |= mask[i];
    return;
  }
  for (std::uint32_t i = at.own_end; i < at.end; ++i) {
    const VocabularyTrie::Word& word = vocabulary_.words()[i];
    if (word.characters == VocabularyTrie::kNotInside) continue;
    if (is_key && word.escapes != inside.escapes) continue;
    const auto characters = static_cast<std::uint32_t>(word.characters - inside.characters);
    if (characters <= reading.left) set(allowed, word.token);
  }
}

void MaskWalk::close(std::uint32_t node, const Reading& reading, Stack& stack,
                     std::span<std::uint32_t> allowed) {
  const ByteTrie::Node& at = vocabulary_.tokens().nodes[node];
  const VocabularyTrie::Inside& inside = vocabulary_.inside()[node];
  const bool is_key = machine_.text_at(reading.state) == Text::kKey;
  const auto& closers = vocabulary_.closers();
  auto closer = std::ranges::lower_bound(closers, at.own_end, {}, &VocabularyTrie::Closer::word);
  if (closer == closers.end() || closer->word >= at.end) return;
  find_rests(reading, stack);
  for (; closer != closers.end() && closer->word < at.end; ++closer) {
    if (rests_[closer->rest] == 0 || (is_key && closer->escapes != inside.escapes)) continue;
    const auto characters = static_cast<std::uint32_t>(closer->characters - inside.characters);
    if (reading.need <= characters && characters <= reading.left)
      set(allowed, vocabulary_.words()[closer->word].token);
  }
}

/// Finds what may follow the quote that closes this string. The same string is met below many
/// nodes.
void MaskWalk::find_rests(const Reading& reading, Stack& stack) {
  if (rests_known_ && rests_of_.state == reading.state && rests_of_.frame == reading.frame &&
      rests_of_.level == reading.level)
    return;
  // Frames that the walk has made are replaced by others under the same id.
  rests_known_ = reading.frame == kNoFrame || reading.frame < given_frames_;
  rests_of_ = reading;
  std::ranges::fill(rests_, std::uint8_t{0});
  const std::size_t frames = stack.size();
  Reading enough = reading;
  enough.need = 0;
  machine_.step(enough, '"', stack, rest_levels_[0]);
  if (!rest_levels_[0].none())
    walk(vocabulary_.rests(), rest_levels_, stack,
         [&](std::uint32_t i, Readings&) { rests_[i] = 1; });
  stack.resize(frames);
}

}  // namespace canopy::grammar
