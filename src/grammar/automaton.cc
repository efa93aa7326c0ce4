#include "src/grammar/automaton.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_set>

#include "src/base/error.h"
#include "src/grammar/limits.h"

namespace canopy::grammar {
namespace {

void check_size(std::size_t size) {
  if (size > kMostStates)
    throw Error("the grammar has more than " + std::to_string(kMostStates) +
                " states or transitions: a smaller schema is needed");
}

/// The states that a state leads to without a byte.
template <class Visit>
void visit_moves(const Automaton& automaton, const State& state, Visit&& visit) {
  switch (state.kind) {
    case State::Kind::kFork:
      for (const StateId target : automaton.targets(state)) visit(target);
      break;
    case State::Kind::kCall:
    case State::Kind::kEnter:
    case State::Kind::kGate:
      visit(state.to);
      break;
    case State::Kind::kBytes:
    case State::Kind::kReturn:
      break;
  }
}

bool spellable(const Edge& edge, const ByteSet& bytes) {
  for (int byte = edge.first; byte <= edge.last; ++byte)
    if (bytes[static_cast<std::size_t>(byte)]) return true;
  return false;
}

/// The states whose heights follow from that of a state.
class Dependents {
 public:
  Dependents(const Automaton& automaton, const ByteSet& bytes) : begin_(automaton.size() + 1) {
    const auto each = [&](auto&& visit) {
      for (StateId id = 0; id < automaton.size(); ++id) {
        const State& state = automaton[id];
        visit_moves(automaton, state, [&](StateId target) { visit(id, target); });
        if (state.kind == State::Kind::kCall) visit(id, state.back);
        if (state.kind != State::Kind::kBytes) continue;
        for (const Edge& edge : automaton.edges(state))
          if (spellable(edge, bytes)) visit(id, edge.to);
      }
    };
    each([&](StateId, StateId target) { ++begin_[target + 1]; });
    for (std::size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
    all_.resize(begin_.back());
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    each([&](StateId id, StateId target) { all_[next[target]++] = id; });
  }
  std::span<const StateId> of(StateId id) const {
    return {all_.data() + begin_[id], all_.data() + begin_[id + 1]};
  }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<StateId> all_;
};

std::uint8_t height_of(const Automaton& automaton, const State& state, const ByteSet& bytes,
                       const std::vector<std::uint8_t>& heights) {
  std::uint8_t least = kNever;
  const auto offer = [&](std::uint8_t height) { least = std::min(least, height); };
  switch (state.kind) {
    case State::Kind::kReturn:
      return 0;
    case State::Kind::kCall:
      return std::max(heights[state.to], heights[state.back]);
    case State::Kind::kEnter: {
      const int deeper = state.levels == Levels::kDeeper ? 1 : 0;
      const int height = heights[state.to] + deeper;
      return height > kMostLevels ? kNever : static_cast<std::uint8_t>(height);
    }
    case State::Kind::kFork:
    case State::Kind::kGate:
      visit_moves(automaton, state, [&](StateId target) { offer(heights[target]); });
      return least;
    case State::Kind::kBytes:
      for (const Edge& edge : automaton.edges(state))
        if (spellable(edge, bytes)) offer(heights[edge.to]);
      return least;
  }
  return kNever;
}

}  // namespace

Automaton::Automaton() {
  add({.kind = State::Kind::kFork});
  add({.kind = State::Kind::kReturn});
}

StateId Automaton::add(State state) {
  check_size(states_.size() + 1);
  states_.push_back(state);
  return static_cast<StateId>(states_.size() - 1);
}

StateId Automaton::bytes(std::span<const Edge> edges, Text text) {
  if (std::ranges::all_of(edges, [](const Edge& edge) { return edge.to == kDead; })) return kDead;
  const StateId id = add({});
  become_bytes(id, edges, text);
  return id;
}

StateId Automaton::byte(char byte, StateId to, Count count) { return range(byte, byte, to, count); }

StateId Automaton::range(char first, char last, StateId to, Count count) {
  return bytes(std::array{
      Edge{static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last), count, to}});
}

StateId Automaton::spell(std::string_view text, StateId to) {
  for (std::size_t i = text.size(); i-- > 0;) to = byte(text[i], to);
  return to;
}

StateId Automaton::fork(std::span<const StateId> targets) {
  std::vector<StateId> different;
  std::unordered_set<StateId> seen{kDead};
  for (const StateId target : targets)
    if (seen.insert(target).second) different.push_back(target);
  if (different.empty()) return kDead;
  if (different.size() == 1) return different[0];
  check_size(targets_.size() + different.size());
  const StateId id = add({.kind = State::Kind::kFork,
                          .first = static_cast<std::uint32_t>(targets_.size()),
                          .count = static_cast<std::uint32_t>(different.size())});
  targets_.insert(targets_.end(), different.begin(), different.end());
  return id;
}

StateId Automaton::fork(StateId one, StateId other) { return fork(std::array{one, other}); }

StateId Automaton::call(StateId rule, StateId back) {
  if (rule == kDead || back == kDead) return kDead;
  return add({.kind = State::Kind::kCall, .to = rule, .back = back});
}

StateId Automaton::enter(StateId to, std::uint32_t need, std::uint32_t left, Levels levels) {
  if (to == kDead) return kDead;
  return add({.kind = State::Kind::kEnter, .levels = levels, .to = to, .need = need, .left = left});
}

StateId Automaton::gate(StateId to) {
  return to == kDead ? kDead : add({.kind = State::Kind::kGate, .to = to});
}

StateId Automaton::reserve() { return add({.kind = State::Kind::kFork}); }

void Automaton::become(StateId reserved, StateId target) {
  if (target == kDead) return;
  check_size(targets_.size() + 1);
  states_[reserved].first = static_cast<std::uint32_t>(targets_.size());
  states_[reserved].count = 1;
  targets_.push_back(target);
}

void Automaton::become_bytes(StateId reserved, std::span<const Edge> edges, Text text) {
  State& state = states_[reserved];
  state = {.kind = State::Kind::kBytes,
           .text = text,
           .first = static_cast<std::uint32_t>(edges_.size())};
  for (const Edge& edge : edges)
    if (edge.to != kDead) edges_.push_back(edge);
  check_size(edges_.size());
  state.count = static_cast<std::uint32_t>(edges_.size()) - state.first;
  std::ranges::sort(edges_.begin() + state.first, edges_.end(), {}, &Edge::first);
}

StateId Automaton::append(const Automaton& other) {
  check_size(size() + other.size());
  check_size(edges_.size() + other.edges_.size());
  check_size(targets_.size() + other.targets_.size());
  const auto states = static_cast<StateId>(size());
  const auto edges = static_cast<std::uint32_t>(edges_.size());
  const auto targets = static_cast<std::uint32_t>(targets_.size());
  for (State state : other.states_) {
    if (state.kind == State::Kind::kBytes) state.first += edges;
    if (state.kind == State::Kind::kFork) state.first += targets;
    state.to += states;
    state.back += states;
    states_.push_back(state);
  }
  for (Edge edge : other.edges_) {
    edge.to += states;
    edges_.push_back(edge);
  }
  for (const StateId target : other.targets_) targets_.push_back(target + states);
  return states;
}

std::vector<std::uint8_t> heights(const Automaton& automaton, const ByteSet& bytes) {
  std::vector<std::uint8_t> heights(automaton.size(), kNever);
  const Dependents dependents(automaton, bytes);
  // Heights only fall, each at most kMostLevels times.
  std::vector<StateId> pending;
  for (StateId id = 0; id < automaton.size(); ++id)
    if (automaton[id].kind == State::Kind::kReturn) pending.push_back(id);
  while (!pending.empty()) {
    const StateId id = pending.back();
    pending.pop_back();
    const std::uint8_t height = height_of(automaton, automaton[id], bytes, heights);
    if (height >= heights[id]) continue;
    heights[id] = height;
    for (const StateId dependent : dependents.of(id)) pending.push_back(dependent);
  }
  return heights;
}

ByteSet bytes_from(const Automaton& automaton, StateId start) {
  ByteSet bytes;
  std::vector<bool> seen(automaton.size());
  std::vector<StateId> pending{start};
  while (!pending.empty()) {
    const StateId id = pending.back();
    pending.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    const State& state = automaton[id];
    visit_moves(automaton, state, [&](StateId target) { pending.push_back(target); });
    if (state.kind == State::Kind::kCall) pending.push_back(state.back);
    if (state.kind != State::Kind::kBytes) continue;
    for (const Edge& edge : automaton.edges(state)) {
      for (int byte = edge.first; byte <= edge.last; ++byte)
        bytes.set(static_cast<std::size_t>(byte));
      pending.push_back(edge.to);
    }
  }
  return bytes;
}

std::vector<StateId> find_empty_loop(const Automaton& automaton) {
  enum class Mark : std::uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(automaton.size(), Mark::kNew);
  std::vector<StateId> path;
  for (StateId start = 0; start < automaton.size(); ++start) {
    path.assign(1, start);
    while (!path.empty()) {
      const StateId id = path.back();
      if (marks[id] != Mark::kNew) {
        marks[id] = Mark::kDone;
        path.pop_back();
        continue;
      }
      marks[id] = Mark::kOpen;
      std::optional<StateId> first;
      visit_moves(automaton, automaton[id], [&](StateId target) {
        if (marks[target] == Mark::kOpen) first = target;
      });
      if (first) {
        // The open states lie on the way from the start; the loop is its end.
        std::erase_if(path, [&](StateId each) { return marks[each] != Mark::kOpen; });
        path.erase(path.begin(), std::ranges::find(path, *first));
        return path;
      }
      visit_moves(automaton, automaton[id], [&](StateId target) {
        if (marks[target] == Mark::kNew) path.push_back(target);
      });
    }
  }
  return {};
}

}  // namespace canopy::grammar
