#include "src/engine/session.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "src/base/error.h"
#include "src/engine/session_impl.h"

namespace canopy {

int Session::Impl::most_tokens(const Request& request) const {
  require(!request.prompt.empty(), "the prompt is empty");
  require_valid(request.sampling);
  require(!synthetic || request.edits.none(), "a synthetic text is no model's: it has no edits");
  require(!request.edits.constraint || !request.ignore_end,
          "a constrained text ends at its end token: it cannot go on past it");
  require(request.sequence < StepRng::kSequences, "there are random numbers for fewer texts");
  const int context = m.plan.context;
  const auto prompt = static_cast<int>(request.prompt.size());
  require(request.max_new_tokens >= 0, "a text cannot have fewer than no tokens");
  const int most = std::min(request.max_new_tokens, context - prompt);
  if (prompt > m.plan.max_prompt || most < std::min(1, request.max_new_tokens))
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
  turn(sequence);
  if (sequence.report.steps == 0)
    sequence.report.known_tokens =
        m.target->kv().pool().known_prefix(sequence.known(), sequence.kv->text_length());
  reuse_prefix(sequence);
  sequence.kv->expect_reuse_at(static_cast<int>(sequence.known().size()));
  if (m.drafter) sequence.draft = m.drafter->open();
  if (replanner && !sequence.tracker) sequence.tracker = replanner->tracker();
  running.push_back(std::move(sequence));
}

void Session::Impl::turn(Sequence& sequence) {
  const ModelConfig& config = m.models.target.config();
  if (!sequence.kv->turn_to(config.text_length(sequence.text.size()))) return;
  add_note(m.notes, "a text has grown beyond " + std::to_string(config.rope_original) +
                        " tokens, where the model has other rotary frequencies for all of it "
                        "(longrope): it was read again");
}

void Session::Impl::reuse_prefix(Sequence& sequence) {
  const int before = sequence.kv->length();
  sequence.kv->reuse_prefix(sequence.reusable_prefix(), *m.compute);
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
    const RequestEvents& events = sequence.events;
    if (sequence.request.prompt_logprobs && events.on_prompt && !is_cancelled(sequence.ticket))
      events.on_prompt(sequence.request.prompt, report.prompt_logprobs);
    if (sequence.most == 0) {
      sequence.gained.clear();
      sequence.ended = true;
      report.finish_reason = "length";
    }
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
  sequence.prompt_length =
      impl_->m.models.target.config().text_length(sequence.request.prompt.size());
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
  if (s.m.drafter)  // of the texts that have ended, too
    if (const Calibrated shown = s.m.drafter->take_shown(); !s.synthetic) s.learned.add(shown);
  if (s.running.empty()) return false;
  s.last = {}, s.m.let_weights_give_way(static_cast<int>(s.running.size()));
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
