#include "src/grammar/vocabulary_trie.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/base/error.h"
#include "src/grammar/text_automaton.h"

namespace canopy::grammar {
namespace {

/// A state of the inside of a string, followed byte by byte.
struct TextRun {
  StateId state = Automaton::kDead;
  std::uint16_t characters = 0, escapes = 0;
};

TextRun advance(const Automaton& automaton, TextRun run, std::uint8_t byte) {
  const bool between = automaton[run.state].text == Text::kFree;
  for (const Edge& edge : automaton.edges(automaton[run.state])) {
    if (byte < edge.first || byte > edge.last) continue;
    run.state = edge.to;
    if (edge.count == Count::kTake) ++run.characters;
    if (between && byte == '\\') ++run.escapes;
    return run;
  }
  return {};
}

void set(std::vector<std::uint32_t>& mask, TokenId token) {
  mask[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
}

}  // namespace

VocabularyTrie::VocabularyTrie(const Tokenizer& tokenizer) : vocab_(tokenizer.vocab()) {
  copy_bytes(tokenizer);
  if (ends_.empty())
    throw Error("the tokenizer has no token that ends a text, which a grammar's text needs");
  arrange();
  read_as_text();
}

std::string_view VocabularyTrie::bytes_of(TokenId token) const {
  const auto id = static_cast<std::size_t>(token);
  if (token < 0 || token >= vocab_) return {};
  return std::string_view(bytes_).substr(begin_[id], begin_[id + 1] - begin_[id]);
}

bool VocabularyTrie::ends_text(TokenId token) const {
  return std::ranges::binary_search(ends_, token);
}

void VocabularyTrie::copy_bytes(const Tokenizer& tokenizer) {
  begin_.push_back(0);
  for (TokenId token = 0; token < vocab_; ++token) {
    if (tokenizer.ends_text(token))
      ends_.push_back(token);
    else if (!tokenizer.is_special(token))
      bytes_ += tokenizer.piece(token);
    begin_.push_back(bytes_.size());
    const std::string_view bytes = bytes_of(token);
    if (bytes.size() == 1) single_bytes_.set(static_cast<std::uint8_t>(bytes[0]));
    require(bytes.size() < kNotInside, "a token of the vocabulary has more than 65534 bytes");
  }
}

void VocabularyTrie::arrange() {
  std::vector<std::pair<std::string_view, TokenId>> sorted;
  for (TokenId token = 0; token < vocab_; ++token)
    if (const auto bytes = bytes_of(token); !bytes.empty()) sorted.emplace_back(bytes, token);
  std::ranges::sort(sorted);  // std::string_view compares by unsigned bytes
  std::vector<std::string_view> texts;
  for (const auto& [bytes, token] : sorted) {
    texts.push_back(bytes);
    words_.push_back({.token = token});
  }
  tokens_ = ByteTrie(texts);
}

void VocabularyTrie::read_as_text() {
  Automaton automaton;
  std::vector<TextRun> path(tokens_.depth + 1);
  path[0].state = add_text(automaton, Text::kFree);
  inside_.resize(tokens_.nodes.size());
  inside_[0].between = true;
  free_mask_.resize((static_cast<std::size_t>(vocab_) + 31) / 32);
  key_mask_.resize(free_mask_.size());
  std::vector<std::pair<Closer, std::string_view>> closers;
  for (std::size_t i = 1; i < tokens_.nodes.size();) {
    const ByteTrie::Node& node = tokens_.nodes[i];
    const TextRun run = path[node.depth] = advance(automaton, path[node.depth - 1], node.byte);
    if (run.state == Automaton::kReturn) {
      for (std::uint32_t word = node.first_word; word < node.end; ++word)
        closers.emplace_back(
            Closer{.word = word, .characters = run.characters, .escapes = run.escapes},
            bytes_of(words_[word].token).substr(node.depth));
    }
    if (run.state == Automaton::kReturn || run.state == Automaton::kDead) {
      i = node.behind;
      continue;
    }
    inside_[i] = {.between = automaton[run.state].text == Text::kFree,
                  .characters = run.characters,
                  .escapes = run.escapes};
    for (std::uint32_t word = node.first_word; word < node.own_end; ++word) {
      words_[word].characters = run.characters;
      words_[word].escapes = run.escapes;
      set(free_mask_, words_[word].token);
      if (run.escapes == 0) set(key_mask_, words_[word].token);
    }
    ++i;
  }
  std::vector<std::string_view> rests;
  for (const auto& [closer, rest] : closers) rests.push_back(rest);
  std::ranges::sort(rests);
  rests_ = ByteTrie(rests);
  std::map<std::string_view, std::uint32_t> node_of;
  for (std::uint32_t i = 0; i < rests_.nodes.size(); ++i) {
    const ByteTrie::Node& node = rests_.nodes[i];
    if (node.own_end > node.first_word) node_of[rests[node.first_word]] = i;
  }
  for (auto& [closer, rest] : closers) {
    closer.rest = node_of.at(rest);
    closers_.push_back(closer);
  }
}

}  // namespace canopy::grammar
