#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "kernels/ops.h"
#include "src/base/error.h"
#include "src/speculation/draft.h"
#include "src/speculation/logits/logit_editor.h"
#include "src/speculation/rules/inexact_rule.h"
#include "src/speculation/rules/verification_rule.h"

namespace canopy {

/// One level of verification, with the chances that it had.
struct Trial {
  SiblingChances chances;  // of the root's children
  /// sum_x min(p, q), the chance that one child drawn from q is accepted; where siblings are not
  /// drawn from q, the first child's chance.
  double overlap = 0;
  std::vector<double> weighted;  // per child: the same where the node has the weight asked for
  int taken = -1;                // the child that was accepted; -1: none
  TokenId token = 0;             // its token, or the one drawn instead
};

/// Thrown where the target's logits of a node are not all finite: there is no token to take then.
class NotFinite : public Error {
 public:
  NotFinite() : Error("the model's logits are not all finite numbers") {}
};

/// Walks a draft with the rule that its drawing calls for, so that the text is distributed exactly
/// as if sampled from the target alone. Logits stay on the device: only the rows that the walk
/// visits are edited, become probabilities and travel to the host. One thread at a time.
class Verifier {
 public:
  /// vocab: columns of the target's logits. `context`: the longest text, tree included, whose
  /// logits may be edited; 0: none.
  Verifier(Device& device, int vocab, int context = 0);
  /// Device bytes a verifier holds. Pure.
  static std::size_t device_bytes(int vocab, int context = 0);
  static constexpr int kAllocations = 2 + RowEditor::kAllocations;  // that hold them

  /// Waits for the stream. Shapes: target_logits [draft.tree.size(), vocab] f32, row i for node i.
  /// Each uniform is keyed by (rng, purpose, node) and used once. At temperature 0, equal logits
  /// are decided for the lower token. `editor`: what the text's logits become before they are
  /// sampled from, null: they stay. Throws NotFinite, NothingAllowed; Error if the draft has more
  /// columns than the target, has logits that are not finite, or cannot have drawn its tree from
  /// its q.
  Verdict verify(const Draft& draft, ConstTensorView target_logits, const Sampling& sampling,
                 const StepRng& rng, Stream& stream, LogitEditor* editor = nullptr);

  /// The same, but the target's own sample decides, whatever the tree is: the text is plain
  /// sampling's for any draft. rng.step is the place of the root's next token in the text; the
  /// token after a node `depth` levels below the root has the uniform of step + depth.
  Verdict verify_by_sample(const TokenTree& tree, ConstTensorView target_logits,
                           const Sampling& sampling, const StepRng& rng, Stream& stream,
                           LogitEditor* editor = nullptr);

  /// The same by a rule that is not exact. Tokens after a node are drawn by (rng, node).
  Verdict verify_inexactly(const Draft& draft, const InexactRule& rule,
                           ConstTensorView target_logits, const Sampling& sampling,
                           const StepRng& rng, Stream& stream, LogitEditor* editor = nullptr);

  /// Reports what the rule makes of the root's children, and the token that it ends with:
  /// distributed as the target's own. `weight`: another that the node may have, from below; only of
  /// children that are drawn. Waits for the stream. Shapes: target_logits [1, vocab] f32, the
  /// root's. Throws like verify.
  Trial try_children(const Draft& draft, ConstTensorView target_logits, const Sampling& sampling,
                     const StepRng& rng, Stream& stream, double weight = 1);

 private:
  /// The node's row as the text's editor leaves it. Shape: [1, vocab].
  ConstTensorView edited(const TokenTree&, ConstTensorView logits, NodeId node, LogitEditor*,
                         Stream&);
  void check(const TokenTree& tree, ConstTensorView target_logits) const;
  /// The row that the node's children were drawn from; empty if it has none.
  static ConstTensorView draft_row(const Draft& draft, NodeId node);
  /// Probabilities of a row of logits. A row of the draft's q, if it is given, comes to q_row_ in
  /// the same wait.
  std::span<double> target_row(ConstTensorView row, const Sampling&, ConstTensorView q, Stream&);
  /// The q that came with the last p.
  std::span<double> read_draft_row();
  /// Each row's best token, -1 where a logit is not finite. Shapes: rows [to.size(), vocab].
  void best_tokens(ConstTensorView rows, std::span<TokenId> to, Stream&);
  /// The walk at temperature 0.
  Verdict follow_best(const TokenTree&, ConstTensorView target_logits, Stream&, LogitEditor*);

  Device* device_;
  int vocab_;
  Buffer probabilities_;                 // [1, vocab] f32; or best_tokens' answers
  Buffer edited_;                        // [1, vocab] f32, where there may be editors
  std::optional<RowEditor> row_editor_;  // where there may be editors
  std::vector<float> p_, q_;             // rows on their way to doubles; q_ has its columns
  std::vector<double> p_row_, q_row_;    // lent to the rule
};

}  // namespace canopy
