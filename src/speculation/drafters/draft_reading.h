#pragma once
#include <span>
#include <stop_token>
#include <vector>

#include "src/model/transformer.h"

namespace canopy {

// Reading, by a draft model, of the texts that it drafts for.

/// Committed tokens that a draft has not run yet, at least one; the last is the root of a tree.
struct PendingText {
  std::span<const TokenId> tokens;
  KvCache* kv = nullptr;  // the draft's, holding all text before them
};

/// Runs tokens and commits them, as much at once as the model was set up for. Tokens that the draft
/// has no row for are run as another. Throws Error or Stopped; what was run by then stays.
void read_text(Transformer& model, std::span<const TokenId> tokens, KvCache& kv, Stream& stream,
               const std::stop_token& stop);

/// Runs what is pending of each text, in one forward but for a draft that lags far, and commits all
/// but the roots, which are then their caches' scratch slot 0. Returns the roots' logits: [texts,
/// the draft's vocab] f32. Throws Error if the model was set up for fewer nodes than there are
/// texts, Stopped.
TensorView run_pending(Transformer& model, std::span<const PendingText> texts, Stream& stream,
                       const std::stop_token& stop);

/// Calls op(rows, number of the first) with the first `vocab` columns of the logits: all rows at
/// once, or one by one where each has a tail to leave out, as views have no stride.
template <class Op>
void for_common_columns(ConstTensorView logits, std::int64_t vocab, const Op& op) {
  if (logits.dim(1) == vocab) return op(logits, 0);
  for (std::int64_t i = 0; i < logits.dim(0); ++i)
    op(ConstTensorView(logits.rows(i, 1).data(), DType::kF32, {1, vocab}), i);
}

}  // namespace canopy
