#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "planner/acceptance.h"
#include "planner/learned_acceptance.h"
#include "src/cluster/rank_figures.h"
#include "src/engine/link_report.h"
#include "src/engine/pool/pool_report.h"
#include "src/model/transformer.h"
#include "src/speculation/logits/logit_edits.h"

namespace canopy {

/// A text that is asked for. It owns its prompt and its options.
struct Request {
  std::vector<TokenId> prompt;  // at least one token
  Sampling sampling;
  LogitEditing edits;  // before sampling; a constrained text ends at its end token
  std::uint64_t seed = 0;
  /// The target's own sample decides each token, by random numbers that are keyed by the seed, the
  /// sequence and the token's place: the text is plain sampling's whatever the draft, the tree and
  /// the other texts are. Without it fewer sweeps make the text (docs/math.md, "Verification"), and
  /// only its distribution is promised. Under a plan with an inexact rule it means nothing.
  bool reproducible = false;
  std::uint32_t sequence =
      0;                    // which continuation of this seed: each has random numbers of its own
  int max_new_tokens = 0;   // 0: the prompt is read, and scored where that is asked for
  bool ignore_end = false;  // go on past the model's end tokens
  int logprobs = 0;         // most likely alternatives to report per token; 0: none
  /// Most likely alternatives to report for each token of the prompt but the first; nothing: the
  /// prompt is not scored.
  std::optional<int> prompt_logprobs;
};

struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0;  // natural log, of the target's distribution before edits, temperature, cuts
};
/// The chosen token's log probability, and those of the likeliest, best first.
struct TokenReport {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

/// One generated text.
struct TextReport {
  int cached_tokens = 0;  // of the prompt: their keys and values were there already
  /// Tokens of the prompt that a remembered text began with, as far as its whole blocks show. That
  /// is more than cached_tokens where the two part within a block.
  int known_tokens = 0;
  int prompt_read = 0;          // tokens of the prompt that need no reading any more
  std::vector<TokenId> tokens;  // without the prompt
  /// "stop" (an end token, or on_token's wish), "length"; "cancelled" until it ends.
  std::string finish_reason;
  std::vector<TokenReport> logprobs;  // when asked: one per token
  /// When asked: one for each token of the prompt but the first, as far as it was read.
  std::vector<TokenReport> prompt_logprobs;
  int steps = 0;                   // sweeps of the target that checked a tree of it
  int checked_nodes = 0;           // of its trees, their roots left out
  int drafted_rows = 0;            // that a draft model ran for them
  int copied_steps = 0;            // that gained tokens of nodes which stand for others
  std::vector<int> step_tokens;    // what each gained; the last may be more than was kept
  std::vector<Seconds> step_ends;  // when each was over, since the text was admitted
};

/// Reports of a request, by the thread that calls step(). on_end or on_error ends it.
struct RequestEvents {
  /// Called once, before any token, where the prompt's log probabilities were asked for; `logprobs`
  /// are those of all its tokens but the first.
  std::function<void(std::span<const TokenId> prompt, std::span<const TokenReport> logprobs)>
      on_prompt;
  /// `logprobs` is null where they were not asked for. False: the text stops with this token.
  std::function<bool(TokenId token, const TokenReport* logprobs)> on_token;
  std::function<void(const TextReport&)> on_end;
  std::function<void(const std::string& what)> on_error;
  /// Called before a step's tokens are reported, with what the model's head read for each of them,
  /// [tokens, dim]. The last of a text may be more than are kept.
  std::function<void(std::span<const float> rows, std::span<const TokenId> tokens)> on_read;
};

using Ticket = std::uint64_t;

/// A text that shares the sweeps.
struct RunningText {
  Ticket ticket = 0;
  const Request* request = nullptr;
  const TextReport* report = nullptr;  // so far
};

/// A tree that a sweep has checked.
struct CheckedTree {
  Ticket text = 0;
  std::vector<NodeId> parents;  // -1 for the root
  std::vector<TokenId> tokens;
  std::vector<NodeId> path;  // that was accepted, from the root
  TokenId next = 0;          // follows it
};

/// Results of a sweep for all that shared it.
struct SweepReport {
  int texts = 0;                             // that shared it
  int tokens = 0;                            // that they gained and kept
  int prompt_rows = 0;                       // of texts that were not read before
  int prompt_tokens = 0, cached_tokens = 0;  // of texts that gained their first token
  int tree_nodes = 0;                        // of each tree; 1: decoding was plain
  int tree_levels = 0;
  Seconds time{};
  Seconds compute{}, drafting{};   // the target's arithmetic; growing the trees
  LinkReport link;                 // what travelled meanwhile
  PoolReport pool;                 // as the sweep ended
  std::vector<RankFigures> ranks;  // of each, since the sweep before; none of a process alone
  std::vector<CheckedTree> trees;
};

struct Runtime;

/// Texts that share the sweeps of one engine. They come and go between sweeps: each is admitted
/// when one of the plan's caches is free, in the order of admit(). A prompt is read in one sweep
/// where no other text waits; else it is spread over sweeps, so that they wait little longer, and
/// their trees may be smaller meanwhile (row_budget.h). At temperature 0 the tokens equal plain
/// decoding's; at any other they are distributed as the target's own. Where the device computes a
/// row alike whatever else shares the sweep, as the CPU does, greedy and reproducible texts depend
/// on their own requests alone; the tokens of other sampled ones also depend on the shapes of their
/// trees, and so on the plan and on the texts that share their sweeps. So are a prompt's log
/// probabilities its own; keys and values of others are taken over only where theirs are, too.
///
/// One thread calls step(); admit() and cancel() may be called from any, also from events.
class Session {
 public:
  /// Does what Engine::open_session() says.
  explicit Session(Runtime& runtime, std::optional<Acceptance> synthetic = {});
  ~Session();
  Session(Session&&) noexcept;

  /// Throws Error if the request can never fit the plan, or asks for what cannot be done.
  Ticket admit(Request request, RequestEvents events = {});
  /// Ends its reports. Its rows run to the end of the sweep, unless nobody else is left: then the
  /// sweep ends with the unit that it is at.
  void cancel(Ticket ticket);

  /// Runs one sweep for all that are admitted; false: there was nothing to do. Throws Stopped on
  /// request: nothing of that sweep is kept, and step() may be called again. Throws Error where a
  /// read or the device fails: that was reported to every text, and the session is over.
  bool step(std::stop_token stop = {}, const Transformer::OnUnit& on_unit = {});

  /// The thread that steps may ask for the sweep of the last step (of no texts: that step kept
  /// none), for a text that has not ended (null if there is none), and for those that run. What the
  /// last two name lives until the next step; in a step's on_unit, until the unit is done.
  const SweepReport& last_sweep() const;
  const TextReport* so_far(Ticket ticket) const;
  std::vector<RunningText> running() const;
  /// Evidence of the texts that have ended, or have kTextBeginning tokens: of those whose siblings
  /// were drawn as the plan says, and whose logits were not edited.
  const LearnedAcceptance& learned() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace canopy
