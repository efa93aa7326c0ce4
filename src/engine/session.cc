#include "src/engine/session.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/engine/replanner.h"
#include "src/engine/row_budget.h"
#include "src/engine/runtime.h"
#include "src/engine/sequence.h"
#include "src/engine/tree_walk.h"

namespace canopy {

struct Session::Impl {
  Runtime& m;
  const std::optional<Acceptance> synthetic;
  std::optional<Replanner> replanner;  // where the plan is adaptive
  LearnedAcceptance learned;
  std::vector<Sequence> running;
  SweepReport last;
  LinkReport told_of = m.link();  // by the last report: links go on between sweeps
  bool pool_is_full = false;      // of KV blocks: nobody is admitted until somebody ends

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
  void begin(Sequence sequence);   // it runs from now on
  void adopt(Sequence& sequence);  // what the pool has of what it has not read
  void leave(Sequence& sequence);  // its cache is free again
  /// The KV pool is full: the youngest text waits again, with its tokens so far.
  void preempt_youngest();

  const TreeShape& shape() const { return replanner ? replanner->shape() : m.plan.policy.shape; }
  /// Chooses the shape of the next sweep's trees, where the plan leaves that open.
  void replan();
  /// True if this sweep reads a block of its prompt for another text: it takes that over then.
  bool is_read_by_another(const Sequence& sequence) const;
  /// Says who reads how much of a prompt in the next sweep, and who has a tree; returns its shape.
  TreeShape share_sweep();
  /// Grow, sweep, verify: one sweep for all that run. Each gains a token at least or an error,
  /// unless it reads a part of its prompt.
  void run(const std::stop_token& stop, const Transformer::OnUnit& on_unit);
  /// Enters what the sweep took and moved, in last and trace. `grown`: when its trees were.
  void account_for(Clock::time_point begun, Clock::time_point grown, std::size_t gained);
  /// A draft for each that has a tree; the others' prompts are read.
  std::vector<Draft> grow(const TreeShape& shape, const std::stop_token& stop);
  /// Verifies one sequence's tree and commits what the walk accepted. `logits`: its nodes' rows.
  /// `read`: what the head read for them. Returns how many tokens that is. Throws NotFinite or
  /// NothingAllowed, with nothing committed.
  std::size_t conclude(Sequence& sequence, const Draft& draft, const ConstTensorView& logits,
                       const ConstTensorView& read);
  /// Its editor learns what it gained, up to the text's end.
  void follow(Sequence& sequence) const;
  /// Finds out where the sequence's values cease to be finite: that is its error.
  void fail(Sequence& sequence, const Draft& draft, const std::stop_token& stop);

  /// Reports what the sequence gained, up to the text's end.
  void tell(Sequence& sequence);
  void end_for_all(const std::string& why);
  bool is_cancelled(Ticket ticket) {
    const std::lock_guard lock(mutex);
    return std::find(cancelled.begin(), cancelled.end(), ticket) != cancelled.end();
  }
};

int Session::Impl::most_tokens(const Request& request) const {
  require(!request.prompt.empty(), "the prompt is empty");
  require_valid(request.sampling);
  require(!synthetic || request.edits.none(), "a synthetic text is no model's: it has no edits");
  require(!request.edits.constraint || !request.ignore_end,
          "a constrained text ends at its end token: it cannot go on past it");
  require(request.sequence < StepRng::kSequences, "there are no random numbers for so many texts");
  const int context = m.plan.context;
  const auto prompt = static_cast<int>(request.prompt.size());
  const int most = std::min(request.max_new_tokens, context - prompt);
  if (prompt > m.plan.max_prompt || most < 1)
    throw Error("a prompt of " + std::to_string(prompt) + " tokens does not fit the context of " +
                std::to_string(context));
  return most;
}

std::unique_ptr<LogitEditor> Session::Impl::editor_of(const Request& request) const {
  LogitEditor::Ends ends;
  if (!request.ignore_end)
    ends = [&tokenizer = *m.models.tokenizer](TokenId token) { return tokenizer.ends_text(token); };
  return std::make_unique<LogitEditor>(request.edits, request.prompt,
                                       m.models.target.config().vocab, std::move(ends));
}

void Session::Impl::begin(Sequence sequence) {
  sequence.kv = m.target->kv().lend();
  if (sequence.report.steps == 0)
    sequence.report.known_tokens = m.target->kv().pool().known_prefix(sequence.known());
  adopt(sequence);
  if (m.drafter) sequence.draft = m.drafter->open();
  if (replanner && !sequence.tracker) sequence.tracker = replanner->tracker();
  running.push_back(std::move(sequence));
}

void Session::Impl::adopt(Sequence& sequence) {
  const int before = sequence.kv->length();
  sequence.kv->adopt(sequence.known(), *m.compute);
  TextReport& report = sequence.report;
  if (report.steps > 0) return;  // one that was sent back finds its own tokens, too
  report.cached_tokens += sequence.kv->length() - before;
  report.prompt_read = sequence.kv->length();
}

void Session::Impl::leave(Sequence& sequence) {
  sequence.kv.reset();
  sequence.draft.reset();
}

void Session::Impl::preempt_youngest() {
  const auto youngest =
      std::max_element(running.begin(), running.end(),
                       [](const Sequence& a, const Sequence& b) { return a.ticket < b.ticket; });
  leave(*youngest);
  pool_is_full = true;
  const std::lock_guard lock(mutex);
  waiting.push_front(std::move(*youngest));
  running.erase(youngest);
}

void Session::Impl::take_turns() {
  const std::lock_guard lock(mutex);
  const auto was_cancelled = [&](const Sequence& sequence) {
    return std::find(cancelled.begin(), cancelled.end(), sequence.ticket) != cancelled.end();
  };
  for (Sequence& sequence : running)
    if (sequence.ended || was_cancelled(sequence)) {
      leave(sequence);
      sequence.ended = true;
      pool_is_full = false;
    }
  std::erase_if(running, [](const Sequence& sequence) { return sequence.ended; });
  std::erase_if(waiting, was_cancelled);  // one that ran when it was cancelled, and was sent back
  const auto fits = [&](const Sequence& sequence) {
    const int nodes =
        std::min(shape().size(), m.plan.policy.room.nodes / static_cast<int>(running.size() + 1));
    return !m.target->kv().all_lent() &&
           (running.empty() ||
            (!pool_is_full &&
             m.target->kv().pool().free_blocks() >=
                 KvPool::blocks_for(static_cast<int>(sequence.text.size()) + nodes)));
  };
  while (!waiting.empty() && fits(waiting.front())) {
    begin(std::move(waiting.front()));
    waiting.pop_front();
  }
  cancelled.clear();
  nobody_left = std::stop_source();
  in_sweep.clear();
  for (const Sequence& sequence : running) in_sweep.push_back(sequence.ticket);
}

void Session::Impl::replan() {
  SharingTexts texts;
  for (Sequence& sequence : running) {
    texts.trackers.push_back(&*sequence.tracker);
    texts.context += static_cast<double>(sequence.text.size());
    texts.missed += sequence.missed;
    texts.left += sequence.most - static_cast<int>(sequence.report.tokens.size());
  }
  texts.context /= static_cast<double>(running.size());
  texts.routes = m.plan.weights.experts.habits;
  replanner->before_sweep(texts, *m.drafter);
}

bool Session::Impl::is_read_by_another(const Sequence& sequence) const {
  const auto length = static_cast<std::size_t>(sequence.kv->length());
  if (length % kKvBlock != 0) return false;
  for (const Sequence& other : running) {
    if (&other == &sequence) return false;  // of two the first reads
    const auto behind = other.kv->length() + other.reads;
    const auto common = std::mismatch(sequence.text.begin(), sequence.text.end() - 1,
                                      other.text.begin(), other.text.begin() + behind);
    const auto blocks = (common.first - sequence.text.begin()) / kKvBlock;
    if (other.reads > 0 && blocks * kKvBlock > static_cast<std::ptrdiff_t>(length)) return true;
  }
  return false;
}

TreeShape Session::Impl::share_sweep() {
  int trees = 0, prompts = 0;
  for (Sequence& sequence : running) {
    if (!sequence.behind().empty()) adopt(sequence);
    sequence.reads = static_cast<int>(sequence.behind().size());
    sequence.has_tree = sequence.reads == 0 || !is_read_by_another(sequence);
    if (!sequence.has_tree) sequence.reads = 0;
    if (sequence.has_tree) ++(sequence.reads == 0 ? trees : prompts);
  }
  int asked = 0;
  for (const Sequence& sequence : running) asked += sequence.reads;
  const bool somebody_waits = trees > 0 && prompts > 0;
  const RowShare share = somebody_waits
                             ? share_rows(m.plan.rows_behind_link, trees, shape().size(), asked)
                             : RowShare{shape().size(), asked};
  // A text that was sent back may have grown longer than the prompts that the plan has room for.
  int left = std::min(share.prompt_rows, m.plan.target_limits.max_nodes -
                                             static_cast<int>(running.size()) * shape().size());
  for (Sequence& sequence : running) {  // those who came first are read first
    const int wanted = sequence.reads;
    sequence.reads = std::min(wanted, left);
    sequence.has_tree = sequence.has_tree && sequence.reads == wanted;
    left -= sequence.reads;
  }
  if (replanner && trees == 0) {  // only texts that begin
    int begin = 0, rows = 0;
    for (const Sequence& sequence : running) {
      begin += sequence.has_tree ? 1 : 0;
      rows += sequence.reads;
    }
    if (begin > 0) return replanner->shape_beside_prompts(begin, rows);
  }
  return share.tree_nodes < shape().size() ? pruned(shape(), share.tree_nodes, m.plan.acceptance)
                                           : shape();
}

std::vector<Draft> Session::Impl::grow(const TreeShape& shape, const std::stop_token& stop) {
  std::vector<Draft> drafts;
  std::vector<DraftRequest> requests;
  for (const Sequence& s : running) {
    if (s.has_tree) {
      drafts.push_back(root_only(s.text.back()));
      requests.push_back({s.draft.get(), s.text, s.request.sampling, s.rng(),
                          s.takes_best_tokens(!m.plan.inexact), s.editor.get()});
    } else if (s.draft && s.reads > 0) {
      const auto read = static_cast<std::size_t>(s.kv->length() + s.reads);
      m.drafter->read(*s.draft, std::span(s.text).first(read), *m.compute, stop);
    }
  }
  if (shape.size() == 1 || drafts.empty()) return drafts;
  return m.drafter->grow(requests, shape, *m.compute, stop);
}

void Session::Impl::run(const std::stop_token& stop, const Transformer::OnUnit& on_unit) {
  const auto begun = Clock::now();
  const TreeShape swept_shape = share_sweep();
  const std::vector<Draft> drafts = grow(swept_shape, stop);
  const auto grown = Clock::now();

  last = {};
  last.texts = static_cast<int>(running.size());
  last.tree_nodes = swept_shape.size();
  last.tree_levels = swept_shape.levels();
  std::vector<SequenceRows> rows;
  std::vector<RowsOfSequence> storage;
  storage.reserve(running.size());  // rows point into it
  auto draft = drafts.begin();
  for (const Sequence& sequence : running) {
    last.prompt_rows += sequence.reads;
    if (sequence.has_tree)
      storage.emplace_back(sequence, draft++->tree, rows);
    else if (sequence.reads > 0)
      storage.emplace_back(sequence, sequence.reads, rows);
  }
  const ConstTensorView logits = m.target->forward(rows, stop, on_unit);
  const ConstTensorView read = m.target->logit_inputs();

  std::vector<std::pair<Sequence*, const Draft*>> failed;
  std::vector<std::int32_t> kept;  // rows of the sweep
  std::int32_t swept = 0;
  std::int64_t row = 0;
  std::size_t gained = 0;
  draft = drafts.begin();
  for (Sequence& sequence : running) {
    for (int i = 0; i < sequence.reads; ++i) kept.push_back(swept++);
    if (!sequence.has_tree) {
      sequence.kv->commit(counting(0, static_cast<std::size_t>(sequence.reads)), *m.compute);
      sequence.kv->share(sequence.text);
      if (sequence.report.steps == 0) sequence.report.prompt_read = sequence.kv->length();
      continue;
    }
    const int nodes = draft->tree.size();
    try {
      gained += conclude(sequence, *draft, logits.rows(row, nodes), read.rows(row, nodes));
      for (const NodeId node : sequence.path) kept.push_back(swept + node);
    } catch (const NotFinite&) {
      failed.emplace_back(&sequence, &*draft);
    } catch (const NothingAllowed& nothing) {
      sequence.error = nothing.what();
    }
    row += nodes;
    swept += nodes;
    ++draft;
  }
  m.target->keep_rows(kept);
  m.compute->synchronize();

  account_for(begun, grown, gained);
  for (const auto& [sequence, tree] : failed) fail(*sequence, *tree, stop);
}

void Session::Impl::account_for(Clock::time_point begun, Clock::time_point grown,
                                std::size_t gained) {
  const auto ended = Clock::now();
  last.time = ended - begun;
  last.compute = m.target->times().total();
  last.drafting = grown - begun;
  const LinkReport moved = m.link();
  last.link = moved - std::exchange(told_of, moved);
  if (last.prompt_rows == 0) m.learn_routes(last.texts * last.tree_nodes, last.link.expert_misses);
  if (m.draft_times) m.draft_times->times();
  if (m.trace) {
    m.trace->span(Trace::Lane::kHost, "step: " + std::to_string(gained) + " tokens", begun, ended);
    if (m.drafter) m.trace->span(Trace::Lane::kHost, "grow the tree", begun, grown);
    m.trace->span(Trace::Lane::kHost, "sweep and verify", grown, ended);
  }
}

std::size_t Session::Impl::conclude(Sequence& sequence, const Draft& draft,
                                    const ConstTensorView& logits, const ConstTensorView& read) {
  const Request& request = sequence.request;
  Verdict verdict =
      m.plan.inexact
          ? m.verifier->verify_inexactly(draft, *m.plan.inexact, logits, request.sampling,
                                         sequence.rng(), *m.compute, sequence.editor.get())
      : request.reproducible
          ? m.verifier->verify_by_sample(draft.tree, logits, request.sampling,
                                         sequence.rng_of_token(), *m.compute, sequence.editor.get())
          : m.verifier->verify(draft, logits, request.sampling, sequence.rng(), *m.compute,
                               sequence.editor.get());
  if (synthetic) verdict = draw_walk(draft.tree, *synthetic, sequence.rng());
  std::vector<TokenId>& gained = sequence.gained;
  for (std::size_t i = 1; i < verdict.path.size(); ++i)
    gained.push_back(draft.tree.token(verdict.path[i]));
  gained.push_back(verdict.next);
  for (std::size_t i = 0; request.logprobs > 0 && i < gained.size(); ++i)
    sequence.logprobs.push_back(
        m.target->report_token(logits, verdict.path[i], gained[i], request.logprobs));

  if (sequence.events.on_read && !is_cancelled(sequence.ticket))
    sequence.events.on_read(m.target->download_rows(read, verdict.path), gained);
  const auto gain = static_cast<int>(sequence.behind().size() + gained.size());
  sequence.missed = last.tree_nodes == 1 ? sequence.missed + gain : 0;
  sequence.kv->commit(counting(0, sequence.behind().size()), *m.compute);
  sequence.kv->commit(verdict.path, *m.compute);
  sequence.path = verdict.path;
  if (draft.tree.size() > 1 || (m.drafter && m.drafter->reads_hidden()))
    m.drafter->conclude(*sequence.draft, draft, verdict, read, *m.compute);
  const bool teaches = !synthetic && !sequence.editor && !m.plan.inexact &&
                       draft.drawing == m.plan.policy.drawing &&
                       m.plan.policy.growth.kind == Growth::Kind::kShape;
  observe(draft.tree, verdict, m.plan.draft && !m.plan.draft->has_heads() ? last.tree_nodes : 0,
          last.tree_levels, [&](int level, int children, int accepted) {
            if (sequence.tracker) sequence.tracker->observe(level, children, accepted);
            if (teaches) sequence.shown.observe(level, children, accepted);
          });
  TextReport& report = sequence.report;
  report.checked_nodes += draft.tree.size() - 1;
  report.drafted_rows += draft.drafted;
  if (!draft.copied.empty() && draft.copied[static_cast<std::size_t>(verdict.path.back())])
    ++report.copied_steps;
  if (sequence.editor) follow(sequence);
  CheckedTree& checked = last.trees.emplace_back();
  checked.text = sequence.ticket;
  for (NodeId node = 0; node < draft.tree.size(); ++node)
    checked.parents.push_back(draft.tree.parent(node));
  checked.tokens.assign(draft.tree.tokens().begin(), draft.tree.tokens().end());
  checked.path = verdict.path;
  checked.next = verdict.next;
  sequence.text.insert(sequence.text.end(), gained.begin(), gained.end());
  sequence.kv->share(sequence.text);
  return gained.size();
}

void Session::Impl::follow(Sequence& sequence) const {
  for (const TokenId token : sequence.gained) {
    if (!sequence.request.ignore_end && m.models.tokenizer->ends_text(token)) return;
    sequence.editor->accept(token);
  }
}

void Session::Impl::fail(Sequence& sequence, const Draft& draft, const std::stop_token& stop) {
  std::vector<SequenceRows> rows;
  const RowsOfSequence again(sequence, draft.tree, rows);
  try {
    m.target->refuse_not_finite(rows, stop);
  } catch (const Stopped&) {  // the others have gained already: the next sweep is what stops
    sequence.error = NotFinite().what();
  } catch (const Error& error) {
    sequence.error = error.what();
  }
}

void Session::Impl::tell(Sequence& sequence) {
  TextReport& report = sequence.report;
  if (!sequence.error.empty()) {
    sequence.ended = true;
    if (sequence.events.on_error && !is_cancelled(sequence.ticket))
      sequence.events.on_error(sequence.error);
    return;
  }
  if (!sequence.has_tree) return;  // a part of its prompt was read
  report.prompt_read = static_cast<int>(sequence.request.prompt.size());
  if (++report.steps == 1) {
    last.prompt_tokens += report.prompt_read;
    last.cached_tokens += report.cached_tokens;
  }
  report.step_tokens.push_back(static_cast<int>(sequence.gained.size()));
  report.step_ends.push_back(since(sequence.admitted));
  for (std::size_t k = 0; k < sequence.gained.size() && !sequence.ended; ++k) {
    const TokenId token = sequence.gained[k];
    report.tokens.push_back(token);
    ++last.tokens;
    const bool asked = !sequence.logprobs.empty();
    if (asked) report.logprobs.push_back(std::move(sequence.logprobs[k]));
    bool stops = !sequence.request.ignore_end && m.models.tokenizer->ends_text(token);
    if (sequence.events.on_token && !is_cancelled(sequence.ticket))
      stops |= !sequence.events.on_token(token, asked ? &report.logprobs.back() : nullptr);
    sequence.ended = stops || std::ssize(report.tokens) == sequence.most;
    if (sequence.ended) report.finish_reason = stops ? "stop" : "length";
  }
  if (sequence.ended || report.tokens.size() >= kTextBeginning)
    learned.add(text_fingerprint(sequence.request.prompt, report.tokens), sequence.shown);
  sequence.gained.clear();
  sequence.logprobs.clear();
  if (sequence.ended && sequence.events.on_end && !is_cancelled(sequence.ticket))
    sequence.events.on_end(report);
}

void Session::Impl::end_for_all(const std::string& why) {
  std::vector<Sequence> told = std::exchange(running, {});
  {
    const std::lock_guard lock(mutex);
    over = why;
    for (Sequence& sequence : waiting) told.push_back(std::move(sequence));
    waiting.clear();
    std::erase_if(told, [&](const Sequence& sequence) {
      return std::find(cancelled.begin(), cancelled.end(), sequence.ticket) != cancelled.end();
    });
  }
  for (const Sequence& sequence : told)
    if (sequence.events.on_error) sequence.events.on_error(why);
}

Session::Session(Runtime& runtime, std::optional<Acceptance> synthetic)
    : impl_(std::make_unique<Impl>(runtime, std::move(synthetic))) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;

Ticket Session::admit(Request request, RequestEvents events) {
  Sequence sequence;
  sequence.most = impl_->most_tokens(request);
  sequence.request = std::move(request);
  sequence.text = sequence.request.prompt;
  if (!sequence.request.edits.none()) sequence.editor = impl_->editor_of(sequence.request);
  sequence.events = std::move(events);
  sequence.report.finish_reason = "cancelled";  // until it ends
  sequence.admitted = Clock::now();
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->over.empty()) throw Error("the session has ended: " + impl_->over);
  const Ticket ticket = sequence.ticket = impl_->next_ticket++;
  impl_->waiting.push_back(std::move(sequence));
  return ticket;
}

void Session::cancel(Ticket ticket) {
  Impl& s = *impl_;
  const std::lock_guard lock(s.mutex);
  if (std::erase_if(s.waiting, [&](const Sequence& one) { return one.ticket == ticket; }) > 0)
    return;
  if (std::find(s.in_sweep.begin(), s.in_sweep.end(), ticket) == s.in_sweep.end()) return;
  s.cancelled.push_back(ticket);
  const bool last = std::all_of(s.in_sweep.begin(), s.in_sweep.end(), [&](Ticket one) {
    return std::find(s.cancelled.begin(), s.cancelled.end(), one) != s.cancelled.end();
  });
  if (last && s.waiting.empty()) s.nobody_left.request_stop();
}

bool Session::step(std::stop_token stop, const Transformer::OnUnit& on_unit) {
  Impl& s = *impl_;
  s.take_turns();
  if (s.running.empty()) return false;
  s.last = {};
  if (s.replanner) s.replan();
  const std::stop_callback pass_on(stop, [&] { s.nobody_left.request_stop(); });
  try {
    s.run(s.nobody_left.get_token(), on_unit);
  } catch (const Stopped&) {
    if (stop.stop_requested()) throw;
    return true;  // everybody was cancelled
  } catch (const KvPoolFull& full) {
    if (s.running.size() == 1) {
      s.end_for_all(full.what());
      throw;
    }
    s.preempt_youngest();
    return true;  // the others sweep next time
  } catch (const Error& error) {
    s.end_for_all(error.what());
    throw;
  }
  if (s.m.drafter && !s.m.drafter->note().empty()) add_note(s.m.notes, s.m.drafter->note());
  for (Sequence& sequence : s.running) s.tell(sequence);
  return true;
}

const SweepReport& Session::last_sweep() const { return impl_->last; }

const LearnedAcceptance& Session::learned() const { return impl_->learned; }

const TextReport* Session::so_far(Ticket ticket) const {
  for (const Sequence& sequence : impl_->running)
    if (sequence.ticket == ticket && !sequence.ended) return &sequence.report;
  const std::lock_guard lock(impl_->mutex);
  for (const Sequence& sequence : impl_->waiting)
    if (sequence.ticket == ticket) return &sequence.report;
  return nullptr;
}

std::vector<RunningText> Session::running() const {
  std::vector<RunningText> texts;
  for (const Sequence& sequence : impl_->running)
    if (!sequence.ended) texts.push_back({sequence.ticket, &sequence.request, &sequence.report});
  return texts;
}

}  // namespace canopy
