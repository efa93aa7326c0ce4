#pragma once
// Private to sessions.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/counting.h"
#include "src/engine/runtime.h"
#include "src/engine/session.h"

namespace canopy {

/// A text in the making: what a session must know of it from sweep to sweep.
struct Sequence {
  Ticket ticket = 0;
  Request request;
  RequestEvents events;
  Clock::time_point admitted;
  int most = 0;                              // tokens to generate
  KvCaches::Loan kv;                         // the target's, while it runs
  std::unique_ptr<DraftState> draft;         // the drafter's, where there is one, while it runs
  std::unique_ptr<LogitEditor> editor;       // where the request edits logits
  std::vector<TokenId> text;                 // prompt and what was gained; the last is the root
  std::optional<AcceptanceTracker> tracker;  // where the plan follows the text
  TextAcceptance shown;                      // for the plans of other texts
  TextReport report;
  std::vector<TokenId> gained;  // by the last sweep, not yet reported
  std::vector<NodeId> path;     // of its last tree, which became text
  std::vector<TokenReport> logprobs;
  std::string error;
  int missed = 0;        // tokens that its draft has not read, as decoding was plain
  int reads = 0;         // rows of its prompt in the next sweep
  bool has_tree = true;  // they complete the prompt: its tree is checked, too
  bool ended = false;

  StepRng rng() const {
    return {request.seed, request.sequence, static_cast<std::uint64_t>(report.steps)};
  }
  /// Keys the number of a reproducible text's token after the root by its place alone.
  StepRng rng_of_token() const {
    return {request.seed, request.sequence, static_cast<std::uint64_t>(report.tokens.size())};
  }
  /// True where the target's own sample decides: nothing is gained by drawing the draft's tokens.
  bool takes_best_tokens(bool exact) const {
    return request.sampling.temperature == 0 || (request.reproducible && exact);
  }
  /// All before the root.
  std::span<const TokenId> known() const { return std::span(text).first(text.size() - 1); }
  /// Tokens before the root that the target has not run: the prompt, once.
  std::span<const TokenId> behind() const {
    return known().subspan(static_cast<std::size_t>(kv->length()));
  }
};

/// One sequence's rows of a sweep and what they point to: what the target has not run of its text,
/// then the tree below it; or a part of a prompt alone.
struct RowsOfSequence {
  std::vector<std::int32_t> chain_position, position, logit_rows;
  std::vector<std::uint64_t> bits;

  RowsOfSequence(const Sequence& sequence, int of_prompt, std::vector<SequenceRows>& rows)
      : chain_position(counting(sequence.kv->length(), static_cast<std::size_t>(of_prompt))) {
    rows.push_back({{sequence.behind().first(chain_position.size()), chain_position, {}, 0, {}},
                    sequence.kv.get(),
                    0});
  }

  RowsOfSequence(const Sequence& sequence, const TokenTree& tree, std::vector<SequenceRows>& rows) {
    KvCache* const kv = sequence.kv.get();
    const std::span<const TokenId> behind = sequence.behind();
    const auto chain = static_cast<int>(behind.size());
    const int base = kv->length();
    chain_position = counting(base, behind.size());
    logit_rows = counting(0, static_cast<std::size_t>(tree.size()));
    for (NodeId i = 0; i < tree.size(); ++i) position.push_back(base + chain + tree.depth(i));
    bits = tree.ancestor_bits();
    if (chain > 0) rows.push_back({{behind, chain_position, {}, 0, {}}, kv, 0});
    rows.push_back({{tree.tokens(), position, bits, 0, logit_rows}, kv, chain});
  }
};

}  // namespace canopy
