#pragma once
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "src/engine/session.h"
#include "src/machine/energy.h"

namespace canopy {

/// A shape that trees had from some sweep on; of size 1 where decoding was plain meanwhile.
struct ShapeUsed {
  int from_sweep = 0, size = 0, levels = 0;
};

/// All texts of one call and what they cost together.
struct BatchReport {
  std::vector<TextReport> texts;         // one per request, in their order
  int sweeps = 0;                        // of the target
  int tokens = 0;                        // of all texts
  int decode_tokens = 0;                 // those of the sweeps after the first
  Seconds prefill{};                     // the first sweep: prompts and first trees share it
  Seconds decode{};                      // all later ones
  LinkReport link;                       // of decode: what travelled, how long the links were busy
  Seconds compute{}, drafting{};         // of decode: the target's arithmetic, growing trees
  Joules prefill_energy, decode_energy;  // by the meter's counters; empty without one
  std::vector<ShapeUsed> shapes;         // in their order; none for plain decoding
  LearnedAcceptance learned;             // Session::learned()
};

/// A step on its way (no new tokens yet), or as it ends: grown, swept, verified.
struct StepProgress {
  int step = 0, new_tokens = 0, total_tokens = 0;
  int texts_done = 0;
  int layer = 0, layers = 0;      // of the target's sweep; the head is after the last layer
  LinkReport link;                // of this step so far
  Seconds time{}, since_start{};  // of this step so far; of the generation
  Seconds compute{}, drafting{};  // of the step, once it ends: the target's arithmetic, the trees
  std::span<const CheckedTree> trees;  // of the step, once it ends
  std::vector<RankFigures> ranks;      // as SweepReport::ranks, of the last step that ended
};

/// Events that a caller may watch. `request`: the text's place among the requests.
struct GenerateEvents {
  std::function<bool(std::size_t request, TokenId)> on_token;  // false: that text stops with it
  std::function<void(std::size_t request, const TextReport&)> on_text;  // it is complete
  /// See RequestEvents::on_read.
  std::function<void(std::size_t request, std::span<const float>, std::span<const TokenId>)>
      on_read;
  std::function<void(const StepProgress&)> on_step;  // for each layer of the target and each step
};

/// Does what Engine::generate() says: continues each prompt in a session of its own.
BatchReport run_batch(Runtime& runtime, std::span<const Request> requests,
                      const GenerateEvents& events = {}, std::stop_token stop = {},
                      std::optional<Acceptance> synthetic = {});

}  // namespace canopy
