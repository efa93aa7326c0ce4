#pragma once
// Private to sessions.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/base/counting.h"
#include "src/engine/runtime.h"
#include "src/engine/session.h"
#include "src/engine/token_score.h"

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
  int missed = 0;          // tokens that its draft has not read, as decoding was plain
  int reads = 0;           // rows of its prompt in the next sweep
  std::size_t scores = 0;  // those of them that score it
  bool has_tree = true;    // they complete the prompt: its tree is checked, too
  bool guesses = true;     // that tree has more than its root
  TextLength prompt_length = TextLength::kShort;  // by which its log probabilities are computed
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
  /// Tokens of the prompt after the first whose log probabilities are known, or not asked for.
  std::size_t scored() const {
    return request.prompt_logprobs ? report.prompt_logprobs.size() : request.prompt.size() - 1;
  }
  bool is_scored() const { return scored() == request.prompt.size() - 1; }
  /// The part of known() that it may take over from others: rows that are to be scored must run.
  std::span<const TokenId> reusable_prefix() const {
    return is_scored() ? known() : known().first(scored());
  }
  /// True if its prompt lacks log probabilities that the other's has, or will have.
  bool is_scored_by(const Sequence& other) const {
    return !is_scored() && other.request.prompt_logprobs >= request.prompt_logprobs &&
           other.prompt_length == prompt_length;
  }
  /// Takes over what the other's prompt has in common with its own.
  void take_scores(const Sequence& other);
  /// Enters what the rows of a sweep said of its prompt. Throws NotFinite.
  void enter(std::span<TokenScore> of_rows) {
    for (TokenScore& score : of_rows) report.prompt_logprobs.push_back(std::move(score).report());
  }
  /// False where a prompt is scored and no tree would be asked for a second token.
  bool wants_guesses() const { return !request.prompt_logprobs || most > 1; }
  /// Tokens before the root that the target has not run: the prompt, once.
  std::span<const TokenId> unread() const {
    return known().subspan(static_cast<std::size_t>(kv->length()));
  }
};

inline void Sequence::take_scores(const Sequence& other) {
  const std::vector<TokenId>&mine = request.prompt, &others = other.request.prompt;
  const auto common = std::mismatch(mine.begin(), mine.end(), others.begin(), others.end()).first;
  const auto last =
      std::min<std::ptrdiff_t>(std::ssize(other.report.prompt_logprobs), common - mine.begin() - 1);
  for (auto i = std::ssize(report.prompt_logprobs); i < last; ++i) {
    TokenReport& one = report.prompt_logprobs.emplace_back(
        other.report.prompt_logprobs[static_cast<std::size_t>(i)]);
    const auto count = static_cast<std::size_t>(*request.prompt_logprobs);
    one.top.resize(std::min(one.top.size(), count));
  }
}

/// One sequence's rows of a sweep and what they point to: what the target has not run of its text,
/// then the tree below it; or a part of a prompt alone.
struct RowsOfSequence {
  std::vector<std::int32_t> chain_position, scored, position, logit_rows;
  std::vector<std::uint64_t> bits;

  RowsOfSequence(const Sequence& sequence, int of_prompt, std::vector<SequenceRows>& rows)
      : chain_position(counting(sequence.kv->length(), static_cast<std::size_t>(of_prompt))),
        scored(rows_to_score(sequence, of_prompt)) {
    rows.push_back(
        {{sequence.unread().first(chain_position.size()), chain_position, {}, 0, {}, scored},
         sequence.kv.get(),
         0});
  }

  RowsOfSequence(const Sequence& sequence, const TokenTree& tree, std::vector<SequenceRows>& rows) {
    KvCache* const kv = sequence.kv.get();
    const std::span<const TokenId> unread = sequence.unread();
    const auto chain = static_cast<int>(unread.size());
    const int base = kv->length();
    chain_position = counting(base, unread.size());
    scored = rows_to_score(sequence, chain);
    logit_rows = counting(0, static_cast<std::size_t>(tree.size()));
    for (NodeId i = 0; i < tree.size(); ++i) position.push_back(base + chain + tree.depth(i));
    bits = tree.ancestor_bits();
    if (chain > 0) rows.push_back({{unread, chain_position, {}, 0, {}, scored}, kv, 0});
    rows.push_back({{tree.tokens(), position, bits, 0, logit_rows}, kv, chain});
  }

  /// A score for each row of `scored`.
  void add_scores(const Sequence& sequence, std::vector<TokenScore>& scores) const {
    const Request& request = sequence.request;
    for (const std::int32_t row : scored)
      scores.emplace_back(
          request
              .prompt[static_cast<std::size_t>(chain_position[static_cast<std::size_t>(row)]) + 1],
          *request.prompt_logprobs);
  }

 private:
  /// Returns those of `count` rows after the committed text that say how likely the prompt's next
  /// tokens are, where nobody knows yet.
  static std::vector<std::int32_t> rows_to_score(const Sequence& sequence, int count) {
    const int length = sequence.kv->length();
    const int first = std::max(0, static_cast<int>(sequence.scored()) - length);
    const int last = std::min(count, static_cast<int>(sequence.request.prompt.size()) - 1 - length);
    return counting(first, static_cast<std::size_t>(std::max(0, last - first)));
  }
};

}  // namespace canopy
