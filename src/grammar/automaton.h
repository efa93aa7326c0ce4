#pragma once
#include <bitset>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace canopy::grammar {

using StateId = std::uint32_t;
using ByteSet = std::bitset<256>;

/// No bound on what a rule counts.
inline constexpr std::uint32_t kUncounted = std::numeric_limits<std::uint32_t>::max();

/// The effect of a transition on the two counters of its rule: those still needed, and those that
/// may still come (characters of a string, items of an array, spaces).
enum class Count : std::uint8_t {
  kNone,
  kTake,    // one of them: not if none may come
  kEnough,  // not while some are needed
};

struct Edge {
  std::uint8_t first = 0, last = 0;  // bytes, both included
  Count count = Count::kNone;
  StateId to = 0;
};

/// Marks the state between two characters of a string, which most of a vocabulary may follow.
enum class Text : std::uint8_t {
  kNone,
  kFree,  // every escape is allowed
  kKey,   // none is, so that a key has one spelling
};

enum class Levels : bool { kSame, kDeeper };

/// One state of a pushdown automaton. kBytes waits for a byte; the others move on without one.
struct State {
  enum class Kind : std::uint8_t {
    kBytes,   // edges [first, first + count), in the order of their bytes
    kFork,    // goes on at each of targets [first, first + count)
    kCall,    // runs the rule at `to`, then goes on at `back`
    kEnter,   // begins a rule: sets its counters, goes on at `to`
    kGate,    // goes on at `to` if no more are needed
    kReturn,  // ends the rule
  };
  Kind kind = Kind::kFork;
  Text text = Text::kNone;
  Levels levels = Levels::kSame;  // of kEnter
  std::uint32_t first = 0, count = 0;
  StateId to = 0, back = 0;
  std::uint32_t need = 0, left = kUncounted;
};

/// A pushdown automaton over bytes, in the making and made. A rule is a state from which every way
/// leads to kReturn; each reads one byte at least. Rules are made from their ends.
/// Throws Error where it would be larger than kMostStates.
class Automaton {
 public:
  static constexpr StateId kDead = 0;    // nothing follows
  static constexpr StateId kReturn = 1;  // ends a rule

  Automaton();

  // Each is the state made, or kDead where nothing can follow it.
  StateId bytes(std::span<const Edge> edges, Text text = Text::kNone);
  StateId byte(char byte, StateId to, Count count = Count::kNone);
  StateId range(char first, char last, StateId to, Count count = Count::kNone);
  StateId spell(std::string_view text, StateId to);
  StateId fork(std::span<const StateId> targets);
  StateId fork(StateId one, StateId other);
  StateId call(StateId rule, StateId back);
  StateId enter(StateId to, std::uint32_t need, std::uint32_t left, Levels levels = Levels::kSame);
  StateId gate(StateId to);
  /// A state that something can lead to before it is known what it is.
  StateId reserve();
  void become(StateId reserved, StateId target);
  void become_bytes(StateId reserved, std::span<const Edge> edges, Text text);
  /// All states of another one; its state s becomes the offset that is returned plus s.
  StateId append(const Automaton& other);

  std::size_t size() const { return states_.size(); }
  const State& operator[](StateId id) const { return states_[id]; }
  std::span<const Edge> edges(const State& state) const {
    return {edges_.data() + state.first, state.count};
  }
  std::span<const StateId> targets(const State& state) const {
    return {targets_.data() + state.first, state.count};
  }

 private:
  StateId add(State state);

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<StateId> targets_;
};

/// A height that no text has.
inline constexpr std::uint8_t kNever = 255;

/// Counts, for each state, the levels of objects and arrays that the flattest way to its rule's end
/// opens; kNever if there is none of at most kMostLevels that spells with these bytes.
std::vector<std::uint8_t> heights(const Automaton& automaton, const ByteSet& bytes);

/// The bytes of all texts that can be read from here.
ByteSet bytes_from(const Automaton& automaton, StateId start);

/// States that lead from one to the next and back to the first without a byte, so that no text can
/// be read by them; none if there is no such loop.
std::vector<StateId> find_empty_loop(const Automaton& automaton);

}  // namespace canopy::grammar
