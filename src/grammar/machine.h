#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/grammar/grammar.h"

namespace canopy::grammar {

using FrameId = std::uint32_t;
inline constexpr FrameId kNoFrame = ~FrameId{0};

/// A rule that waits for another one's end.
struct Frame {
  FrameId below = kNoFrame;
  StateId back = 0;
  std::uint32_t need = 0, left = 0;  // its counters
  std::uint32_t level = 0;           // objects and arrays that are open in it
};

/// The frames of all readings of a text. A frame is never changed; what lies below it has a smaller
/// id. Readings share what they have in common, so a copy of one is as cheap as a Reading.
using Stack = std::vector<Frame>;

/// One way to understand the text so far: a state that waits for a byte, and what lies below it.
struct Reading {
  StateId state = 0;
  FrameId frame = kNoFrame;
  std::uint32_t need = 0, left = kUncounted;
  std::uint32_t level = 0;
};

/// All ways to understand the text so far.
struct Readings {
  std::vector<Reading> open;
  bool complete = false;  // the text may end here
  bool none() const { return open.empty() && !complete; }
};

/// Reads texts of a grammar byte by byte. Each reading that it follows can be completed: by bytes
/// that the vocabulary has tokens for, and within kMostLevels. (A counter may bar one reading, but
/// only next to another that it does not bar.) Work and memory of a step are bounded by kMostMoves.
/// One thread at a time.
class Machine {
 public:
  /// `bytes`: those that may be read. Throws Error if no text can be spelled with them.
  Machine(std::shared_ptr<const Grammar> grammar, const ByteSet& bytes);

  /// The readings of the empty text.
  void begin(Stack& stack, Readings& to);
  /// The readings of the text with one byte more; none if it is not allowed. Adds to `stack`.
  void step(const Readings& from, std::uint8_t byte, Stack& stack, Readings& to);
  /// The same, from one of them.
  void step(const Reading& from, std::uint8_t byte, Stack& stack, Readings& to);

  Text text_at(StateId state) const { return automaton()[state].text; }

 private:
  struct Slot {
    std::uint32_t step = 0;
    std::uint32_t reading = 0;
  };

  const Automaton& automaton() const { return grammar_->automaton(); }
  void take(const Reading& from, std::uint8_t byte, Stack& stack, Readings& to);
  void settle(const Reading& first, Stack& stack, Readings& to);
  void begin_step(Readings& to);
  bool is_new(const Reading& reading, const Stack& stack);

  std::shared_ptr<const Grammar> grammar_;
  ByteSet bytes_;
  std::vector<std::uint8_t> heights_;
  std::vector<Reading> pending_, seen_;
  std::vector<Slot> table_;  // readings of this step, by hash; open addressing
  std::uint32_t step_ = 0;
};

/// Drops the frames that no reading stands on.
void compact(Stack& stack, Readings& readings);

/// Returns the parts of readings that a mask depends on, as bytes that are equal for equal
/// readings. No token has more than `longest_token` bytes, so a counter beyond that is as good as
/// any larger one.
std::string key_of(const Readings& readings, const Stack& stack, std::uint32_t longest_token);

}  // namespace canopy::grammar
