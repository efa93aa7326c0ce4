#pragma once
// Private to sessions: their state, for what happens between sweeps (session.cc) and in one
// (session_sweep.cc).
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "planner/calibrated/prices.h"
#include "src/engine/replanner.h"
#include "src/engine/runtime.h"
#include "src/engine/sequence.h"
#include "src/engine/session.h"

namespace canopy {

struct Session::Impl {
  Runtime& m;
  const std::optional<Acceptance> synthetic;
  std::optional<Replanner> replanner;  // where the plan is adaptive
  LearnedAcceptance learned;
  RecentTokens recent;
  std::vector<Sequence> running;
  SweepReport last;
  LinkReport reported_link = m.link();  // by the last report: links go on between sweeps
  std::vector<RankFigures> reported_ranks =
      m.cluster ? m.cluster->figures() : std::vector<RankFigures>();
  bool pool_is_full = false;  // of KV blocks: nobody is admitted until somebody ends

  std::mutex mutex;  // of what follows, which other threads touch
  std::deque<Sequence> waiting;
  std::vector<Ticket> in_sweep, cancelled;  // tickets of `running`, and of those that should go
  std::stop_source nobody_left;             // ends the sweep that is on its way
  Ticket next_ticket = 1;
  std::string over;  // why the session has ended

  Impl(Runtime& runtime, std::optional<Acceptance> acceptance)
      : m(runtime), synthetic(std::move(acceptance)) {
    if (m.plan.adaptive) replanner.emplace(m.plan, m.sampled);
  }

  /// Tokens that a request may generate. Throws Error if its prompt does not fit the plan.
  int most_tokens(const Request& request) const;
  std::unique_ptr<LogitEditor> editor_of(const Request& request) const;
  /// Lets go who has ended or was cancelled; those who wait take the caches that are free.
  void take_turns();
  void begin(Sequence sequence);  // it runs from now on
  /// Has its cache hold texts of its length. Where it has grown out of another, it is read again.
  void turn(Sequence& sequence);
  /// True if it has guesses at tokens in trees of this shape. Trees do not reach from texts of one
  /// length into those of another.
  bool wants_guesses(const Sequence& sequence, const TreeShape& shape) const;
  void reuse_prefix(Sequence& sequence);  // what the pool has of what it has not read
  void leave(Sequence& sequence);         // its cache is free again
  /// The KV pool is full: the youngest text waits again, with its tokens so far.
  void preempt_youngest();

  const TreeShape& shape() const { return replanner ? replanner->shape() : m.plan.policy.shape; }
  /// Chooses the shape of the next sweep's trees, where the plan leaves that open.
  void replan();
  /// True if this sweep reads a block of its prompt for another text: it takes that over then. Of
  /// recurrent layers the other is asked for a snapshot there.
  bool is_read_by_another(const Sequence& sequence) const;
  /// Says who reads how much of a prompt in the next sweep, and who has a tree; returns its shape.
  TreeShape share_sweep();
  /// Grow, sweep, verify: one sweep for all that run. Each gains a token at least or an error,
  /// unless it reads a part of its prompt.
  void run(const std::stop_token& stop, const Transformer::OnUnit& on_unit);
  /// Enters what the sweep took and moved, in last and trace. `grown`: when its trees were.
  void account_for(Clock::time_point begun, Clock::time_point grown, std::size_t gained);
  /// Gives the drafter the costs that trees of up to this shape's nodes grow by, where the draft's
  /// rows value them.
  void price_trees(const TreeShape& shape);
  /// A draft for each that has a tree; the others' prompts are read.
  std::vector<Draft> grow(const TreeShape& shape, const std::stop_token& stop);
  /// Commits a part of its prompt, which was read.
  void read_on(Sequence& sequence);
  /// Verifies one sequence's tree and commits what the walk accepted. `logits`: its nodes' rows.
  /// `read`: what the head read for them. Returns how many tokens that is. Throws NotFinite or
  /// NothingAllowed, with nothing committed.
  std::size_t conclude(Sequence& sequence, const Draft& draft, const ConstTensorView& logits,
                       const ConstTensorView& read);
  /// Its editor learns what it gained, up to the text's end.
  void follow(Sequence& sequence) const;
  /// Finds out where the sequence's values cease to be finite: that is its error. `draft`: null
  /// where a part of its prompt was read.
  void fail(Sequence& sequence, const Draft* draft, const std::stop_token& stop);

  /// Reports what the sequence gained, up to the text's end.
  void tell(Sequence& sequence);
  void end_for_all(const std::string& why);
  bool is_cancelled(Ticket ticket) {
    const std::lock_guard lock(mutex);
    return std::find(cancelled.begin(), cancelled.end(), ticket) != cancelled.end();
  }
};

}  // namespace canopy
