#include "src/grammar/machine.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/grammar/limits.h"

namespace canopy::grammar {
namespace {

constexpr std::size_t kSlots = 4 * kMostMoves;
static_assert((kSlots & (kSlots - 1)) == 0);

bool same_stack(const Stack& stack, FrameId a, FrameId b) {
  while (a != b) {
    if (a == kNoFrame || b == kNoFrame) return false;
    const Frame &one = stack[a], &other = stack[b];
    if (one.back != other.back || one.need != other.need || one.left != other.left ||
        one.level != other.level)
      return false;
    a = one.below;
    b = other.below;
  }
  return true;
}

bool same(const Reading& a, const Reading& b, const Stack& stack) {
  return a.state == b.state && a.need == b.need && a.left == b.left && a.level == b.level &&
         same_stack(stack, a.frame, b.frame);
}

/// Hashes what is on top alone: stacks that are equal may have different ids.
std::size_t hash(const Reading& reading, const Stack& stack) {
  std::uint64_t h = reading.state;
  const auto mix = [&](std::uint64_t value) {
    h = (h ^ value) * 0x9E3779B97F4A7C15u;  // 2^64 by the golden ratio: spreads what is close
    h ^= h >> 29;
  };
  mix(reading.need);
  mix(reading.left);
  mix(reading.level);
  FrameId frame = reading.frame;
  for (int depth = 0; depth < 4 && frame != kNoFrame; ++depth) {
    mix(stack[frame].back);
    mix(stack[frame].left);
    frame = stack[frame].below;
  }
  return static_cast<std::size_t>(h);
}

std::string names_of(const ByteSet& bytes) {
  std::string names;
  for (int byte = 0; byte < 256; ++byte) {
    if (!bytes[static_cast<std::size_t>(byte)]) continue;
    if (names.size() > 60) return names + " ...";
    names += ' ' + std::to_string(byte);
  }
  return names;
}

}  // namespace

Machine::Machine(std::shared_ptr<const Grammar> grammar, const ByteSet& bytes)
    : grammar_(std::move(grammar)),
      bytes_(bytes),
      heights_(heights(automaton(), bytes)),
      table_(kSlots) {
  if (heights_[grammar_->start()] == kNever)
    throw Error("no text of the grammar can be spelled: the vocabulary has no tokens of the bytes" +
                names_of(bytes_from(automaton(), grammar_->start()) & ~bytes));
}

void Machine::begin_step(Readings& to) {
  to.open.clear();
  to.complete = false;
  seen_.clear();
  if (++step_ == 0) {
    std::ranges::fill(table_, Slot{});
    step_ = 1;
  }
}

void Machine::begin(Stack& stack, Readings& to) {
  begin_step(to);
  settle({.state = grammar_->start()}, stack, to);
}

void Machine::step(const Readings& from, std::uint8_t byte, Stack& stack, Readings& to) {
  begin_step(to);
  for (const Reading& reading : from.open) take(reading, byte, stack, to);
}

void Machine::step(const Reading& from, std::uint8_t byte, Stack& stack, Readings& to) {
  begin_step(to);
  take(from, byte, stack, to);
}

void Machine::take(const Reading& from, std::uint8_t byte, Stack& stack, Readings& to) {
  if (!bytes_[byte]) return;
  for (const Edge& edge : automaton().edges(automaton()[from.state])) {
    if (byte < edge.first) return;
    if (byte > edge.last) continue;
    Reading next = from;
    next.state = edge.to;
    if (edge.count == Count::kEnough && next.need > 0) return;
    if (edge.count == Count::kTake) {
      if (next.left == 0) return;
      if (next.left != kUncounted) --next.left;
      if (next.need > 0) --next.need;
    }
    settle(next, stack, to);
    return;
  }
}

bool Machine::is_new(const Reading& reading, const Stack& stack) {
  for (std::size_t i = hash(reading, stack);; ++i) {
    Slot& slot = table_[i % kSlots];
    if (slot.step != step_) {
      slot = {.step = step_, .reading = static_cast<std::uint32_t>(seen_.size())};
      seen_.push_back(reading);
      return true;
    }
    if (same(seen_[slot.reading], reading, stack)) return false;
  }
}

/// Follows the moves without a byte, the first alternative first, so that one reading at least
/// arrives before the bounds drop others.
void Machine::settle(const Reading& first, Stack& stack, Readings& to) {
  pending_.assign(1, first);
  while (!pending_.empty() && seen_.size() < kMostMoves && to.open.size() < kMostReadings) {
    Reading reading = pending_.back();
    pending_.pop_back();
    if (reading.level + heights_[reading.state] > kMostLevels || !is_new(reading, stack)) continue;
    const State& state = automaton()[reading.state];
    switch (state.kind) {
      case State::Kind::kBytes:
        to.open.push_back(reading);
        break;
      case State::Kind::kFork: {
        const auto targets = automaton().targets(state);
        for (std::size_t i = targets.size(); i-- > 0;) {
          reading.state = targets[i];
          pending_.push_back(reading);
        }
        break;
      }
      case State::Kind::kCall:
        stack.push_back({.below = reading.frame,
                         .back = state.back,
                         .need = reading.need,
                         .left = reading.left,
                         .level = reading.level});
        pending_.push_back({.state = state.to,
                            .frame = static_cast<FrameId>(stack.size() - 1),
                            .level = reading.level});
        break;
      case State::Kind::kEnter:
        reading.state = state.to;
        reading.need = state.need;
        reading.left = state.left;
        if (state.levels == Levels::kDeeper) ++reading.level;
        pending_.push_back(reading);
        break;
      case State::Kind::kGate:
        if (reading.need > 0) break;
        reading.state = state.to;
        pending_.push_back(reading);
        break;
      case State::Kind::kReturn: {
        if (reading.frame == kNoFrame) {
          to.complete = true;
          break;
        }
        const Frame& frame = stack[reading.frame];
        pending_.push_back({.state = frame.back,
                            .frame = frame.below,
                            .need = frame.need,
                            .left = frame.left,
                            .level = frame.level});
        break;
      }
    }
  }
}

void compact(Stack& stack, Readings& readings) {
  std::vector<FrameId> moved(stack.size(), kNoFrame);
  constexpr FrameId kLive = 0;
  for (const Reading& reading : readings.open)
    for (FrameId f = reading.frame; f != kNoFrame && moved[f] != kLive; f = stack[f].below)
      moved[f] = kLive;
  Stack kept;
  for (FrameId f = 0; f < stack.size(); ++f) {
    if (moved[f] != kLive) continue;
    moved[f] = static_cast<FrameId>(kept.size());
    kept.push_back(stack[f]);
    if (kept.back().below != kNoFrame) kept.back().below = moved[kept.back().below];
  }
  for (Reading& reading : readings.open)
    if (reading.frame != kNoFrame) reading.frame = moved[reading.frame];
  stack = std::move(kept);
}

std::string key_of(const Readings& readings, const Stack& stack, std::uint32_t longest_token) {
  std::vector<std::uint32_t> words{readings.complete};
  std::vector<std::uint32_t> numbers(stack.size(),
                                     0);  // in the order of their first use; 0: unused
  std::uint32_t frames = 0;
  const auto add_rule = [&](StateId state, std::uint32_t need, std::uint32_t left,
                            std::uint32_t level) {
    words.insert(words.end(),
                 {state, std::min(need, longest_token), std::min(left, longest_token), level});
  };
  for (const Reading& reading : readings.open) {
    add_rule(reading.state, reading.need, reading.left, reading.level);
    const std::uint32_t known = frames;
    FrameId f = reading.frame;
    for (; f != kNoFrame && numbers[f] == 0; f = stack[f].below) {
      numbers[f] = ++frames;
      add_rule(stack[f].back, stack[f].need, stack[f].left, stack[f].level);
    }
    words.push_back(frames - known);
    words.push_back(f == kNoFrame ? 0 : numbers[f]);
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(words[0])};
}

}  // namespace canopy::grammar
