#include <algorithm>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/engine/engine_impl.h"

namespace canopy {

namespace {

/// One sequence's parts of a sweep and what they point to: its prompt first, if that has not been
/// run, then the tree below it.
struct SequenceSweep {
  std::vector<std::int32_t> chain_position, position, rows;
  std::vector<std::uint64_t> bits;

  SequenceSweep(const Sequence& sequence, const TokenTree& tree, std::vector<SequenceRows>& parts) {
    KvCache* const kv = sequence.caches->target.get();
    const auto ahead = static_cast<int>(sequence.behind.size());
    const int base = kv->length();
    chain_position = counting(base, sequence.behind.size());
    rows = counting(0, static_cast<std::size_t>(tree.size()));
    for (NodeId i = 0; i < tree.size(); ++i) position.push_back(base + ahead + tree.depth(i));
    bits = tree.ancestor_bits();
    if (ahead > 0) parts.push_back({{sequence.behind, chain_position, {}, 0, {}}, kv, 0});
    parts.push_back({{tree.tokens(), position, bits, 0, rows}, kv, ahead});
  }
};

}  // namespace

int Engine::Impl::most_tokens(const GenerateRequest& request) const {
  require(!request.prompt.empty(), "the prompt is empty");
  require(request.sequence < StepRng::kSequences, "there are no random numbers for so many texts");
  const int context = plan.slots - plan.policy.shape.size();
  const auto prompt = static_cast<int>(request.prompt.size());
  const int most = std::min(request.max_new_tokens, context - prompt);
  if (prompt > plan.max_prompt || most < 1)
    throw Error("a prompt of " + std::to_string(prompt) + " tokens does not fit the context of " +
                std::to_string(context));
  return most;
}

Sequence Engine::Impl::begin(const GenerateRequest& request, GenerateReport& report,
                             SequenceCaches& with) {
  with.target->truncate(0);
  if (with.draft) with.draft->truncate(0);
  const auto prompt = request.prompt;
  return {&request,
          &report,
          &with,
          most_tokens(request),
          {prompt.begin(), prompt.end() - 1},
          {prompt.begin(), prompt.end()},
          false,
          replanner ? std::optional(replanner->tracker()) : std::nullopt};
}

void Engine::Impl::note_refused_graphs() {
  if (policy && !policy->why_no_graphs().empty())
    add_note(notes, "the draft's levels could not be launched as CUDA graphs (" +
                        policy->why_no_graphs() +
                        "); its kernels are launched one by one, as with --enforce-eager");
}

void Engine::Impl::replan(std::span<Sequence> sequences) {
  std::vector<AcceptanceTracker*> texts;
  double context = 0;
  for (Sequence& sequence : sequences) {
    texts.push_back(&*sequence.tracker);
    context += sequence.caches->target->length();
  }
  if (texts.empty()) return;
  context /= static_cast<double>(texts.size());
  if (replanner->after_sweep(texts, context, *policy) && grows_trees())
    policy->reshape(replanner->shape());
}

std::vector<Engine::Impl::Step> Engine::Impl::step(std::span<Sequence> sequences,
                                                   const OnUnit& on_unit,
                                                   const std::stop_token& stop) {
  const auto begun = Clock::now();
  std::vector<Draft> drafts;
  if (grows_trees()) {
    std::vector<DraftRequest> grow;
    for (const Sequence& s : sequences)
      grow.push_back({s.pending, s.caches->draft.get(), s.request->sampling, s.rng()});
    drafts = policy->grow(*draft, grow, *compute, stop);
    for (Sequence& s : sequences) s.pending.clear();
  } else {
    for (Sequence& s : sequences) {
      drafts.push_back(root_only(s.pending.back()));
      s.pending.pop_back();  // conclude() puts it back: the draft has not run it
    }
  }
  const auto grown = Clock::now();
  drafting = grown - begun;

  std::vector<SequenceRows> parts;
  std::vector<SequenceSweep> storage;
  storage.reserve(sequences.size());  // parts point into it
  for (std::size_t i = 0; i < sequences.size(); ++i)
    storage.emplace_back(sequences[i], drafts[i].tree, parts);
  const ConstTensorView logits = target->forward(parts, *compute, stop, on_unit);

  std::vector<Step> steps;
  std::size_t tokens = 0;
  std::int64_t row = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const int nodes = drafts[i].tree.size();
    try {
      steps.push_back(conclude(sequences[i], drafts[i], logits.rows(row, nodes)));
    } catch (const NotFinite&) {  // nothing of this sequence is committed yet
      std::vector<SequenceRows> own;
      const SequenceSweep again(sequences[i], drafts[i].tree, own);
      refuse_not_finite(own, stop);
    }
    tokens += steps.back().tokens.size();
    row += nodes;
  }
  compute->synchronize();
  target_times->times();
  if (draft_times) draft_times->times();
  if (trace) {
    const auto now = Clock::now();
    trace->span(Trace::Lane::kHost, "step: " + std::to_string(tokens) + " tokens", begun, now);
    if (policy) trace->span(Trace::Lane::kHost, "grow the tree", begun, grown);
    trace->span(Trace::Lane::kHost, "sweep and verify", grown, now);
  }
  return steps;
}

namespace {

/// Down the tree as the vector has it: child k is the accepted one with chance p_k.
Verdict draw_walk(const TokenTree& tree, const Acceptance& acceptance, const StepRng& rng) {
  Verdict verdict{{0}, tree.token(0)};
  while (true) {
    const NodeId node = verdict.path.back();
    const TokenTree::Range children = tree.children(node);
    double left = rng.uniform(StepRng::Purpose::kAccept, static_cast<std::uint64_t>(node));
    int k = 0;
    const auto& p = acceptance.accept;
    for (; k < children.count && k < std::ssize(p); ++k)
      if ((left -= p[static_cast<std::size_t>(k)]) < 0) break;
    if (k == children.count || k == std::ssize(p)) return verdict;
    verdict.path.push_back(children.first + k);
  }
}

}  // namespace

/// Verifies one sequence's tree and commits what the walk accepted. `logits`: its nodes' rows.
Engine::Impl::Step Engine::Impl::conclude(Sequence& sequence, const Draft& grown,
                                          const ConstTensorView& logits) {
  const GenerateRequest& request = *sequence.request;
  Verdict verdict = verifier->verify(grown, logits, request.sampling, sequence.rng(), *compute);
  if (synthetic_acceptance) verdict = draw_walk(grown.tree, *synthetic_acceptance, sequence.rng());
  sequence.caches->target->commit(counting(0, sequence.behind.size()), *compute);
  sequence.caches->target->commit(verdict.path, *compute);
  sequence.behind.clear();

  // The draft keeps what it has run of the path; a leaf that it never ran is still to come.
  std::vector<NodeId> known;
  for (const NodeId node : verdict.path) {
    if (const std::int32_t row = grown.row[static_cast<std::size_t>(node)]; row >= 0)
      known.push_back(row);
    else
      sequence.pending.push_back(grown.tree.token(node));
  }
  if (policy) sequence.caches->draft->commit(known, *compute);
  sequence.pending.push_back(verdict.next);
  if (sequence.tracker) {
    for (std::size_t i = 0; i < verdict.path.size(); ++i) {
      const TokenTree::Range children = grown.tree.children(verdict.path[i]);
      if (children.count == 0) continue;
      const bool last = i + 1 == verdict.path.size();
      sequence.tracker->observe(children.count, last ? -1 : verdict.path[i + 1] - children.first);
    }
  }

  Step step;
  for (std::size_t i = 1; i < verdict.path.size(); ++i)
    step.tokens.push_back(grown.tree.token(verdict.path[i]));
  step.tokens.push_back(verdict.next);
  for (std::size_t i = 0; request.logprobs > 0 && i < step.tokens.size(); ++i)
    step.logprobs.push_back(
        report_token(logits, verdict.path[i], step.tokens[i], request.logprobs));
  return step;
}

BatchReport Engine::generate(std::span<const GenerateRequest> requests,
                             const GenerateEvents& events, std::stop_token stop) {
  Impl& m = *impl_;
  for (const GenerateRequest& request : requests) m.most_tokens(request);
  BatchReport batch;
  batch.texts.resize(requests.size());
  for (GenerateReport& text : batch.texts) text.finish_reason = "cancelled";  // until it is done

  if (m.replanner) {  // a text depends on nothing that was written before it
    m.replanner.emplace(*m.cost, m.plan, m.sampled);
    m.policy->reshape(m.plan.policy.shape);
  }
  const auto note_shape = [&] {
    if (!m.policy) return;
    const TreeShape& shape = m.replanner ? m.replanner->shape() : m.policy->shape();
    const ShapeUsed used{batch.sweeps, shape.size(), shape.levels()};
    if (batch.shapes.empty() || batch.shapes.back().size != used.size ||
        batch.shapes.back().levels != used.levels)
      batch.shapes.push_back(used);
  };

  std::vector<Sequence> running;
  std::size_t next = 0;
  for (SequenceCaches& caches : m.caches) {
    if (next == requests.size()) break;
    running.push_back(m.begin(requests[next], batch.texts[next], caches));
    ++next;
  }
  StepProgress progress;
  progress.layers = m.models.target.config().layers;
  LinkReport link = m.link();
  const auto joules = [&] { return m.energy != nullptr ? m.energy->read() : Joules(); };
  Joules energy = joules();
  while (!running.empty()) {
    const auto start = Clock::now();
    const auto tell = [&](int layer, int new_tokens, Seconds time, const LinkReport& of_step) {
      if (!events.on_step) return;
      progress.step = batch.sweeps + 1;
      progress.new_tokens = new_tokens;
      progress.total_tokens = batch.tokens;
      progress.layer = layer;
      progress.link = of_step;
      progress.time = time;
      progress.since_start = batch.prefill + batch.decode + time;
      events.on_step(progress);
    };
    note_shape();
    std::vector<Impl::Step> steps;
    try {
      steps = m.step(
          running, [&](const Unit& unit) { tell(unit.layer, 0, since(start), m.link() - link); },
          stop);
    } catch (const Stopped&) {
      break;
    }
    const Seconds time = since(start);
    const LinkReport now = m.link(), of_step = now - std::exchange(link, now);

    const int before = batch.tokens;
    for (std::size_t i = 0; i < running.size(); ++i) {
      Sequence& sequence = running[i];
      GenerateReport& text = *sequence.report;
      const auto index = static_cast<std::size_t>(&text - batch.texts.data());
      ++text.steps;
      text.step_tokens.push_back(static_cast<int>(steps[i].tokens.size()));
      text.step_ends.push_back(batch.prefill + batch.decode + time);
      for (std::size_t k = 0; k < steps[i].tokens.size() && !sequence.ended; ++k) {
        const TokenId token = steps[i].tokens[k];
        text.tokens.push_back(token);
        ++batch.tokens;
        if (sequence.request->logprobs > 0)
          text.logprobs.push_back(std::move(steps[i].logprobs[k]));
        const bool end = !sequence.request->ignore_end && m.models.tokenizer->ends_text(token);
        sequence.ended = end || std::ssize(text.tokens) == sequence.most;
        if (sequence.ended) text.finish_reason = end ? "stop" : "length";
        if (events.on_token) events.on_token(index, token);
      }
      if (!sequence.ended) continue;
      ++progress.texts_done;
      if (events.on_text) events.on_text(index, text);
      if (next == requests.size()) continue;
      sequence = m.begin(requests[next], batch.texts[next], *sequence.caches);
      ++next;
    }
    std::erase_if(running, [](const Sequence& sequence) { return sequence.ended; });
    progress.compute = m.target_times->times().total();
    progress.drafting = m.drafting;
    tell(progress.layers, batch.tokens - before, time, of_step);
    progress.compute = progress.drafting = Seconds(0);
    if (m.energy != nullptr) m.energy->keep_up();
    if (batch.sweeps++ == 0) {
      batch.prefill = time;
      const Joules used = joules();
      batch.prefill_energy = used - std::exchange(energy, used);
    } else {
      batch.decode += time;
      batch.decode_tokens += batch.tokens - before;
      batch.link += of_step;
      batch.compute += m.target_times->times().total();
      batch.drafting += m.drafting;
    }
    if (m.replanner) m.replan(running);
  }
  (batch.sweeps == 0 ? batch.prefill_energy : batch.decode_energy) = joules() - energy;
  m.note_refused_graphs();
  return batch;
}

}  // namespace canopy
