#pragma once
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "planner/calibrated/valued_trees.h"
#include "planner/tree_shape.h"
#include "src/base/rng.h"
#include "src/model/kv_pool.h"
#include "src/speculation/draft.h"
#include "src/speculation/rules/verification_rule.h"

namespace canopy {

class LogitEditor;
class Stream;

/// State that a drafter keeps of one text: a draft model's KV cache, counts of n-grams. Made and
/// given back by Drafter alone; used with the text that it was opened for.
class DraftState {
 public:
  virtual ~DraftState() = default;
};

/// One text's part of a step of drafting.
struct DraftRequest {
  DraftState* state = nullptr;
  std::span<const TokenId> text;  // all that is committed; the last token is the root
  Sampling sampling;
  StepRng rng;
  bool best_tokens = false;       // siblings are the draft's best tokens, whatever the method draws
  LogitEditor* editor = nullptr;  // what the text's logits become; null: they stay
};

/// Proposes trees of tokens. One thread at a time, always with the same stream.
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// The state of a text that begins. Throws Error if the drafter was made for no more texts at a
  /// time.
  virtual std::unique_ptr<DraftState> open() = 0;

  /// A tree of this shape below the last token of each text. Reads of a text what it has not seen.
  /// Throws Error or Stopped; the states are then as good as before.
  virtual std::vector<Draft> grow(std::span<const DraftRequest> requests, const TreeShape& shape,
                                  Stream& stream, std::stop_token stop) = 0;
  /// Reads a part of a prompt, up to the end of `text`, for drafts to come, where it reads texts
  /// before they are drafted for.
  virtual void read(DraftState&, std::span<const TokenId>, Stream&, std::stop_token) {}
  /// Takes the verdict on a draft: its text goes on by this path and the next token. `read`: what
  /// the target's head read for each node of the tree, ready when `stream` gets there, its own
  /// until the next sweep; empty where nobody knows. Called for a root alone only where
  /// reads_hidden(). Shapes: read [nodes, the target's dim] f32.
  virtual void conclude(DraftState& state, const Draft& draft, const Verdict& verdict,
                        ConstTensorView read, Stream& stream) = 0;
  /// True if it goes by what the target's head reads.
  virtual bool reads_hidden() const { return false; }

  /// The costs that trees grow by from now on, where the draft's rows value them.
  virtual void set_prices(const GrowthPrices&) {}
  /// Returns what its valued trees have shown since it was last asked; texts show it as they end,
  /// or now and then.
  virtual Calibrated take_shown() { return {}; }

  /// Room that it was made with, for the trees of all texts together.
  virtual TreeRoom room() const = 0;
  /// Says if `texts` texts can have trees of this shape.
  bool has_room(const TreeShape& shape, int texts) const {
    return room().holds(TreeRoom::of(shape).for_texts(texts));
  }
  /// The pools of keys and values that its texts grow in.
  virtual std::vector<KvPool*> kv_pools() { return {}; }
  /// Every fallback that it has taken, in words for the user; "" for none.
  virtual std::string note() const { return {}; }
};

}  // namespace canopy
