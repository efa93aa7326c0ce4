#include "src/text/pipeline/bpe.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/text/token_table.h"

namespace canopy::text {

namespace {
constexpr TokenId kGone = -1;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

std::uint64_t pair_of(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

/// The order of a heap (std::push_heap), whose top is the greatest.
bool later(const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.order > b.order;
}
}  // namespace

std::optional<TokenId> find(const Vocabulary& vocabulary, std::string_view text) {
  const auto it = vocabulary.find(text);
  return it == vocabulary.end() ? std::nullopt : std::optional(it->second);
}

Merges::Slot& Merges::slot_of(std::uint64_t pair) {
  // Fibonacci hashing; the high bits are the well mixed ones.
  std::size_t at = static_cast<std::size_t>((pair ^ pair >> 29) * 0x9E3779B97F4A7C15u >> 24);
  for (;; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.pair == pair || slot.pair == kFree) return slot;
  }
}

void Merges::grow() {
  std::vector<Slot> old(std::max<std::size_t>(64, 2 * slots_.size()));
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.pair != kFree) slot_of(slot.pair) = slot;
}

void Merges::add(TokenId left, TokenId right, Merge merge) {
  if (2 * used_ >= slots_.size()) grow();
  const std::uint64_t pair = pair_of(left, right);
  Slot& slot = slot_of(pair);
  if (slot.pair == kFree) ++used_;
  slot = {pair, merge};
}

const Merges::Merge* Merges::find(TokenId left, TokenId right) const {
  if (slots_.empty()) return nullptr;
  const Slot& slot = const_cast<Merges*>(this)->slot_of(pair_of(left, right));
  return slot.pair == kFree ? nullptr : &slot.merge;
}

void Bpe::start(std::string_view piece, std::vector<Scratch::Symbol>& symbols) const {
  symbols.clear();
  const auto put = [&](TokenId token) {
    const auto at = static_cast<std::uint32_t>(symbols.size());
    symbols.push_back({token, at == 0 ? kNone : at - 1, at + 1});
  };
  bool unknown_waits = false;  // held back so that a run of unknown characters can become one token
  for (std::size_t i = 0; i < piece.size();) {
    const std::string_view character = piece.substr(i, utf8_length(piece[i]));
    i += character.size();
    if (const auto token = find(vocabulary, character)) {
      if (unknown_waits) put(*unknown);
      unknown_waits = false;
      put(*token);
      continue;
    }
    if (byte_tokens) {
      const auto of = [&](char c) { return (*byte_tokens)[static_cast<unsigned char>(c)]; };
      if (std::all_of(character.begin(), character.end(), [&](char c) { return of(c) >= 0; })) {
        for (const char c : character) put(of(c));
        continue;
      }
    }
    if (!unknown) continue;
    if (unknown_waits && !fuse_unknown) put(*unknown);
    unknown_waits = true;
  }
  if (unknown_waits) put(*unknown);
  if (!symbols.empty()) symbols.back().next = kNone;
}

void Bpe::merge(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  const auto candidate = [&](std::uint32_t left) {
    const Scratch::Symbol& symbol = symbols[left];
    const Merges::Merge* merge =
        symbol.next == kNone ? nullptr : merges.find(symbol.token, symbols[symbol.next].token);
    if (merge) heap.push_back({std::uint64_t{merge->rank} << 32 | left, merge->token});
    return merge != nullptr;
  };
  for (std::uint32_t i = 0; i < symbols.size(); ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), later);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(best.order);
    Scratch::Symbol& left = symbols[at];
    if (left.token == kGone || left.next == kNone) continue;
    Scratch::Symbol& right = symbols[left.next];
    // The neighbours may have changed since; what counts is that they still make the same token.
    const Merges::Merge* now = merges.find(left.token, right.token);
    if (!now || now->token != best.token) continue;

    left.token = best.token;
    left.next = right.next;
    right.token = kGone;
    if (left.next != kNone) symbols[left.next].previous = at;
    if (left.previous != kNone && candidate(left.previous))
      std::push_heap(heap.begin(), heap.end(), later);
    if (candidate(at)) std::push_heap(heap.begin(), heap.end(), later);
  }
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (ignore_merges) {
    if (const auto token = find(vocabulary, piece)) {
      out.push_back(*token);
      return;
    }
  }
  start(piece, scratch.symbols);
  merge(scratch);
  for (const Scratch::Symbol& symbol : scratch.symbols)
    if (symbol.token != kGone) out.push_back(symbol.token);
}

void add_merge(Bpe& bpe, std::string_view left, std::string_view right, std::uint32_t rank,
               std::string_view where) {
  const auto id = [&](std::string_view text) {
    const auto found = find(bpe.vocabulary, text);
    if (!found)
      throw Error(std::string(where) + " needs " + in_quotes(text) + ", which is no token");
    return *found;
  };
  bpe.merges.add(id(left), id(right), {rank, id(std::string(left) + std::string(right))});
}

void add_cuts(Bpe& bpe, std::string_view token, TokenId id, std::uint32_t rank) {
  for (std::size_t cut = utf8_length(token[0]); cut < token.size();
       cut += utf8_length(token[cut])) {
    const auto left = find(bpe.vocabulary, token.substr(0, cut));
    const auto right = left ? find(bpe.vocabulary, token.substr(cut)) : std::nullopt;
    if (right) bpe.merges.add(*left, *right, {rank, id});
  }
}

std::array<TokenId, 256> find_byte_tokens(const Bpe& bpe) {
  std::array<TokenId, 256> tokens{};
  for (unsigned b = 0; b < 256; ++b)
    tokens[b] = find(bpe.vocabulary, byte_token_name(static_cast<unsigned char>(b))).value_or(-1);
  return tokens;
}

std::string byte_token_name(unsigned char byte) {
  std::array<char, 8> name{};
  std::snprintf(name.data(), name.size(), "<0x%02X>", static_cast<unsigned>(byte));
  return name.data();
}

std::optional<char> named_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, problem] = std::from_chars(&token[3], &token[5], value, 16);
  if (problem != std::errc{} || end != &token[5]) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace canopy::text
