#include "src/speculation/verifier.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace canopy {
namespace {

/// The token that a number below the sum of p draws from it.
TokenId draw_by(double uniform, std::span<const double> p) {
  TokenId last = 0;  // if rounding leaves a crumb: the last token that can be drawn
  for (std::size_t t = 0; t < p.size(); ++t) {
    if (!(p[t] > 0)) continue;
    last = static_cast<TokenId>(t);
    if (uniform < p[t]) break;
    uniform -= p[t];
  }
  return last;
}

/// Choices made by the step's keyed random numbers: no uniform serves twice.
class KeyedChoices final : public Choices {
 public:
  explicit KeyedChoices(const StepRng& rng) : rng_(rng) {}

  bool accept(NodeId child, double chance) override {
    return uniform(StepRng::Purpose::kAccept, child) < chance;  // strict, and 0 < uniform < 1
  }

  TokenId draw(NodeId node, std::span<const double> p) override {
    return draw_by(uniform(StepRng::Purpose::kBonus, node), p);
  }

 private:
  double uniform(StepRng::Purpose purpose, NodeId node) const {
    return rng_.uniform(purpose, static_cast<std::uint64_t>(node));
  }
  StepRng rng_;
};

std::size_t row_bytes_of(int vocab) { return static_cast<std::size_t>(vocab) * sizeof(float); }

RowEditor::Room room_of_row(int vocab, int context) {
  const auto columns = static_cast<std::size_t>(vocab), text = static_cast<std::size_t>(context);
  return {.rows = 1,
          .texts = 1,
          .shared = LogitEditor::most_shared(text, columns),
          .own = std::min(text, columns),
          .vocab = columns};
}

}  // namespace

Verifier::Verifier(Device& device, int vocab, int context)
    : device_(&device),
      vocab_(vocab),
      probabilities_(device.allocate(row_bytes_of(vocab))),
      p_(static_cast<std::size_t>(vocab)),
      p_row_(static_cast<std::size_t>(vocab)) {
  q_.reserve(p_.size());
  q_row_.reserve(p_.size());
  if (context == 0) return;
  edited_ = device.allocate(row_bytes_of(vocab));
  row_editor_.emplace(device, room_of_row(vocab, context));
}

std::size_t Verifier::device_bytes(int vocab, int context) {
  if (context == 0) return row_bytes_of(vocab);
  return 2 * row_bytes_of(vocab) + RowEditor::device_bytes(room_of_row(vocab, context));
}

ConstTensorView Verifier::edited(const TokenTree& tree, ConstTensorView logits, NodeId node,
                                 LogitEditor* editor, Stream& stream) {
  const ConstTensorView row = logits.rows(node, 1);
  if (editor == nullptr) return row;
  require(row_editor_.has_value(), "verification: no room was made for edits of logits");
  const TensorView to(edited_.data(), DType::kF32, {1, vocab_});
  const RowEditor::Row way{editor, path_to(tree, node)};
  if (!row_editor_->edit(stream, row, {&way, 1}, to)) {
    stream.synchronize();  // what was queued reads memory that the caller may free now
    throw NothingAllowed(editor->why_nothing());
  }
  return to;
}

ConstTensorView Verifier::draft_row(const Draft& draft, NodeId node) {
  if (draft.tree.children(node).count == 0) return {};
  const std::vector<std::int32_t>& rows = draft.q_row.empty() ? draft.row : draft.q_row;
  return draft.q.rows(rows[static_cast<std::size_t>(node)], 1);
}

std::span<double> Verifier::target_row(ConstTensorView row, const Sampling& sampling,
                                       ConstTensorView q, Stream& stream) {
  const TensorView p(probabilities_.data(), DType::kF32, {1, vocab_});
  device_->ops().probabilities(stream, row, sampling, p);
  device_->download(stream, std::as_writable_bytes(std::span(p_)), p.data());
  q_.resize(q.empty() ? 0 : static_cast<std::size_t>(q.dim(1)));
  if (!q_.empty()) device_->download(stream, std::as_writable_bytes(std::span(q_)), q.data());
  stream.synchronize();
  if (std::isnan(p_.front())) throw NotFinite();
  p_row_.assign(p_.begin(), p_.end());
  return p_row_;
}

std::span<double> Verifier::read_draft_row() {
  require(!q_.empty(), "verification: no row of q was read");
  require(!std::isnan(q_.front()), kDraftNotFinite);
  q_row_.assign(q_.begin(), q_.end());
  return q_row_;
}

void Verifier::best_tokens(ConstTensorView rows, std::span<TokenId> to, Stream& stream) {
  const auto most = static_cast<std::size_t>(vocab_);  // of the answers that the buffer holds
  for (std::size_t first = 0; first < to.size(); first += most) {
    const std::span<TokenId> part = to.subspan(first, std::min(most, to.size() - first));
    const auto count = static_cast<std::int64_t>(part.size());
    const TensorView best(probabilities_.data(), DType::kI32, {count, 1});
    device_->ops().top_tokens(stream, rows.rows(static_cast<std::int64_t>(first), count), 1, best);
    device_->download(stream, std::as_writable_bytes(part), best.data());
  }
  stream.synchronize();
}

Verdict Verifier::follow_best(const TokenTree& tree, ConstTensorView target_logits, Stream& stream,
                              LogitEditor* editor) {
  const auto finite = [](TokenId token) {
    if (token < 0) throw NotFinite();
    return token;
  };
  // A device apart from the host reads all rows in less time than it takes to answer once; the CPU,
  // and edits, which are of a node's own path, are asked for what the walk visits.
  if (!device_->shares_host_memory() && editor == nullptr) {
    std::vector<TokenId> best(static_cast<std::size_t>(tree.size()));
    best_tokens(target_logits, best, stream);
    return follow_samples(
        tree, [&](NodeId node) { return finite(best[static_cast<std::size_t>(node)]); });
  }
  return follow_samples(tree, [&](NodeId node) {
    TokenId token = 0;
    best_tokens(edited(tree, target_logits, node, editor, stream), {&token, 1}, stream);
    return finite(token);
  });
}

void Verifier::check(const TokenTree& tree, ConstTensorView target_logits) const {
  require(target_logits.rank() == 2 && target_logits.dim(0) == tree.size() &&
              target_logits.dim(1) == vocab_,
          "verification: the target's logits must be [nodes of the tree, vocab]");
}

Verdict Verifier::verify(const Draft& draft, ConstTensorView target_logits,
                         const Sampling& sampling, const StepRng& rng, Stream& stream,
                         LogitEditor* editor) {
  check(draft.tree, target_logits);
  if (sampling.temperature == 0 && target_decides(draft.drawing))
    return follow_best(draft.tree, target_logits, stream, editor);
  require(target_decides(draft.drawing) || (draft.q.rank() == 2 && draft.q.dim(1) <= vocab_),
          "verification: the draft's q must be [inner nodes, at most the target's vocab]");
  KeyedChoices choices(rng);
  // A graph is judged from above also where nothing was merged: that depends on what was drawn.
  const Asking asking = draft.copied.empty() ? Asking::kFromBelow : Asking::kFromAbove;
  return verify_tree(
      draft.tree, draft.drawing,
      [&](NodeId node) {
        const ConstTensorView q =
            target_decides(draft.drawing) ? ConstTensorView() : draft_row(draft, node);
        return target_row(edited(draft.tree, target_logits, node, editor, stream), sampling, q,
                          stream);
      },
      [&](NodeId) { return read_draft_row(); }, choices, asking);
}

Verdict Verifier::verify_by_sample(const TokenTree& tree, ConstTensorView target_logits,
                                   const Sampling& sampling, const StepRng& rng, Stream& stream,
                                   LogitEditor* editor) {
  check(tree, target_logits);
  if (sampling.temperature == 0) return follow_best(tree, target_logits, stream, editor);
  return follow_samples(tree, [&](NodeId node) {
    const ConstTensorView row = edited(tree, target_logits, node, editor, stream);
    StepRng of_token = rng;
    of_token.step += static_cast<std::uint64_t>(tree.depth(node));
    const std::span<double> p = target_row(row, sampling, {}, stream);
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    return draw_by(of_token.uniform(StepRng::Purpose::kBonus, 0) * total, p);
  });
}

Verdict Verifier::verify_inexactly(const Draft& draft, const InexactRule& rule,
                                   ConstTensorView target_logits, const Sampling& sampling,
                                   const StepRng& rng, Stream& stream, LogitEditor* editor) {
  check(draft.tree, target_logits);
  const bool takes_q = rule.kind == InexactRule::Kind::kLenience && sampling.temperature > 0;
  const auto row_by = [&](const Sampling& by) -> LendRow {
    return [&, by](NodeId node) {
      return target_row(edited(draft.tree, target_logits, node, editor, stream), by,
                        takes_q ? draft_row(draft, node) : ConstTensorView(), stream);
    };
  };
  KeyedChoices choices(rng);
  return canopy::verify_inexactly(draft.tree, rule,
                                  {.plain = row_by({.temperature = 1}),
                                   .p = row_by(sampling),
                                   .q = [&](NodeId) { return read_draft_row(); },
                                   .greedy = sampling.temperature == 0,
                                   .log_q = draft.log_q},
                                  choices);
}

Trial Verifier::try_children(const Draft& draft, ConstTensorView target_logits,
                             const Sampling& sampling, const StepRng& rng, Stream& stream,
                             double weight) {
  require(target_logits.rank() == 2 && target_logits.dim(0) == 1 && target_logits.dim(1) == vocab_,
          "verification: the root's logits must be [1, vocab]");
  const bool from_q = !target_decides(draft.drawing);
  const std::span<double> p = target_row(
      target_logits, sampling, from_q ? draft.q.rows(draft.row[0], 1) : ConstTensorView(), stream);
  const std::span<double> q = from_q ? read_draft_row() : std::span<double>();
  const TokenTree::Range range = draft.tree.children(0);
  const auto children = draft.tree.tokens().subspan(static_cast<std::size_t>(range.first),
                                                    static_cast<std::size_t>(range.count));
  Trial trial;
  if (from_q) trial.overlap = overlap(p, q);
  if (from_q && weight != 1) {
    std::vector<double> p_again(p.begin(), p.end()), q_again(q.begin(), q.end());
    trial.weighted = sibling_chances(draft.drawing, children, p_again, q_again, weight).accept;
  }
  trial.chances = sibling_chances(draft.drawing, children, p, q);
  if (from_q && weight == 1) trial.weighted = trial.chances.accept;
  if (q.empty() && !children.empty()) trial.overlap = trial.chances.accept.front();

  const std::vector<double>& accept = trial.chances.accept;
  double left = rng.uniform(StepRng::Purpose::kAccept, 0);
  for (std::size_t k = 0; k < accept.size() && left >= 0; ++k)
    // The last that can be accepted, if one must be: rounding may leave a crumb.
    if ((left -= accept[k]) < 0 || (trial.chances.none == 0 && accept[k] > 0))
      trial.taken = static_cast<int>(k);
  trial.token = trial.taken >= 0 ? children[static_cast<std::size_t>(trial.taken)]
                                 : KeyedChoices(rng).draw(0, p);
  return trial;
}

}  // namespace canopy
