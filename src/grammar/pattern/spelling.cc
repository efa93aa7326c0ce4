#include "src/grammar/pattern/spelling.h"

#include <algorithm>
#include <map>
#include <utility>

namespace canopy::grammar {
namespace {

constexpr std::pair<char32_t, char> kShortEscapes[]{
    {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};

/// Finds the states from which some text ends.
std::vector<bool> live_states(std::span<const TextState> states) {
  std::vector<std::vector<std::size_t>> before(states.size());
  std::vector<bool> live(states.size());
  std::vector<std::size_t> pending;
  const auto add = [&](std::size_t state) {
    if (!live[state]) pending.push_back(state);
    live[state] = true;
  };
  for (std::size_t i = 0; i < states.size(); ++i) {
    for (const TextStep& step : states[i].steps) before[step.to].push_back(i);
    if (states[i].ends || states[i].everything) add(i);
  }
  while (!pending.empty()) {
    const std::size_t state = pending.back();
    pending.pop_back();
    for (const std::size_t each : before[state]) add(each);
  }
  return live;
}

class Speller {
 public:
  Speller(Automaton& automaton, std::span<const TextState> states, StateId any)
      : automaton_(automaton), states_(states) {
    const std::vector<bool> live = live_states(states);
    for (std::size_t i = 0; i < states.size(); ++i)
      ids_.push_back(!live[i]               ? Automaton::kDead
                     : states[i].everything ? any
                                            : automaton.reserve());
  }

  StateId add() {
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (ids_[i] != Automaton::kDead && !states_[i].everything) spell(i);
    return ids_[0];
  }

 private:
  using Steps = std::vector<TextStep>;

  void spell(std::size_t state) {
    const Steps& steps = states_[state].steps;
    std::vector<Edge> edges;
    if (states_[state].ends) edges.push_back({'"', '"', Count::kNone, Automaton::kReturn});
    for (const TextStep& step : within(steps, ' ', 0x7F))
      for (const CodeRange& range :
           {CodeRange{' ', '!'}, CodeRange{'#', '['}, CodeRange{']', 0x7F}})
        add_edge(edges, std::max(step.range.first, range.first),
                 std::min(step.range.last, range.last), ids_[step.to]);
    if (const StateId escape = escaped(steps); escape != Automaton::kDead)
      add_edge(edges, '\\', '\\', escape);
    for (const auto& [first, last, bytes] :
         {Encoded{0x80, 0x7FF, 1}, Encoded{0x800, 0xFFFF, 2}, Encoded{0x10000, 0x10FFFF, 3}}) {
      const Steps some = within(steps, first, last);
      if (some.empty()) continue;
      const char32_t size = char32_t{1} << (6 * bytes);  // characters of one leading byte
      const char32_t mark = bytes == 1 ? 0xC0 : bytes == 2 ? 0xE0 : 0xF0;
      for (char32_t base = first & ~(size - 1); base <= last; base += size)
        add_edge(edges, mark + base / size, mark + base / size, rest(some, base, bytes));
    }
    automaton_.become_bytes(ids_[state], edges, Text::kNone);
  }

  struct Encoded {
    char32_t first, last;
    int bytes;  // after the leading one
  };

  static Steps within(const Steps& steps, char32_t first, char32_t last) {
    Steps out;
    for (const TextStep& step : steps)
      if (step.range.first <= last && step.range.last >= first)
        out.push_back(
            {.range = {std::max(step.range.first, first), std::min(step.range.last, last)},
             .to = step.to});
    return out;
  }

  static void add_edge(std::vector<Edge>& edges, char32_t first, char32_t last, StateId to) {
    if (first > last || to == Automaton::kDead) return;
    if (!edges.empty() && edges.back().to == to && edges.back().last + 1u == first)
      edges.back().last = static_cast<std::uint8_t>(last);
    else
      edges.push_back(
          {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), Count::kNone, to});
  }

  /// Returns the state that waits for the last bytes of the characters from `base` on.
  StateId rest(const Steps& steps, char32_t base, int bytes) {
    const char32_t size = char32_t{1} << (6 * bytes);
    const Steps here = within(steps, base, base + size - 1);
    if (here.empty()) return Automaton::kDead;
    const char32_t inner = size / 64;
    const bool whole = here.size() == 1 && here[0].range == CodeRange{base, base + size - 1};
    const std::pair key(ids_[here[0].to], bytes);
    if (whole)
      if (const auto known = whole_.find(key); known != whole_.end()) return known->second;
    std::vector<Edge> edges;
    for (char32_t i = 0; i < 64; ++i) {
      const char32_t begin = base + i * inner;
      const Steps single = within(here, begin, begin + inner - 1);
      if (single.empty()) continue;
      add_edge(edges, 0x80 + i, 0x80 + i,
               bytes == 1 ? ids_[single[0].to] : rest(here, begin, bytes - 1));
    }
    const StateId made = same_bytes(edges);
    if (whole) whole_.emplace(key, made);
    return made;
  }

  /// Returns the state after a backslash.
  StateId escaped(const Steps& steps) {
    std::vector<Edge> edges;
    const auto target = [&](char32_t c) {
      const Steps single = within(steps, c, c);
      return single.empty() ? Automaton::kDead : ids_[single[0].to];
    };
    for (const auto& [c, letter] : kShortEscapes)
      add_edge(edges, static_cast<unsigned char>(letter), static_cast<unsigned char>(letter),
               target(c));
    std::vector<Edge> high;
    for (char32_t sixteen = 0; sixteen < 2; ++sixteen) {
      std::vector<Edge> low;
      for (char32_t i = 0; i < 16; ++i) {
        const char32_t c = sixteen * 16 + i;
        const bool has_short =
            std::ranges::any_of(kShortEscapes, [&](const auto& each) { return each.first == c; });
        const char32_t digit = i < 10 ? '0' + i : 'a' + i - 10;
        if (!has_short) add_edge(low, digit, digit, target(c));
      }
      add_edge(high, '0' + sixteen, '0' + sixteen, same_bytes(low));
    }
    if (const StateId digits = same_bytes(high); digits != Automaton::kDead)
      add_edge(edges, 'u', 'u', automaton_.spell("00", digits));
    return same_bytes(edges);
  }

  /// Makes a state with these edges, one for all that are equal.
  StateId same_bytes(const std::vector<Edge>& edges) {
    std::vector<StateId> key;
    for (const Edge& edge : edges) key.insert(key.end(), {edge.first, edge.last, edge.to});
    const auto [entry, is_new] = kept_.try_emplace(std::move(key), Automaton::kDead);
    if (is_new) entry->second = automaton_.bytes(edges);
    return entry->second;
  }

  Automaton& automaton_;
  std::span<const TextState> states_;
  std::vector<StateId> ids_;  // of the states; kDead where no text ends
  std::map<std::pair<StateId, int>, StateId> whole_;
  std::map<std::vector<StateId>, StateId> kept_;
};

}  // namespace

StateId add_spelled(Automaton& automaton, std::span<const TextState> states, StateId any) {
  return Speller(automaton, states, any).add();
}

}  // namespace canopy::grammar
