#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/engine/row_budget.h"
#include "src/engine/session_impl.h"
#include "src/engine/tree_walk.h"

namespace canopy {

void Session::Impl::replan() {
  SharingTexts texts;
  for (Sequence& sequence : running) {
    texts.trackers.push_back(&*sequence.tracker);
    texts.context += static_cast<double>(sequence.text.size());
    texts.missed += sequence.missed;
    texts.left += sequence.most - static_cast<int>(sequence.report.tokens.size());
  }
  texts.context /= static_cast<double>(running.size());
  texts.weights = &m.plan.weights;
  texts.routes = m.plan.weights.experts.habits;
  replanner->before_sweep(texts, *m.drafter);
}

bool Session::Impl::is_read_by_another(const Sequence& sequence) const {
  const auto length = static_cast<std::size_t>(sequence.kv->length());
  if (length % kKvBlock != 0 || !m.target->kv().pool().remembers()) return false;
  for (const Sequence& other : running) {
    if (&other == &sequence) return false;  // of two the first reads
    if (other.kv->text_length() != sequence.kv->text_length()) continue;
    if (!sequence.is_scored() && !sequence.is_scored_by(other)) continue;
    const auto known = other.kv->length() + other.reads;
    const auto common = std::mismatch(sequence.text.begin(), sequence.text.end() - 1,
                                      other.text.begin(), other.text.begin() + known);
    // The last row in common scores a token that may not be.
    const auto rows = common.first - sequence.text.begin() - (sequence.is_scored() ? 0 : 1);
    const auto shared = static_cast<int>(rows / kKvBlock * kKvBlock);
    if (other.reads == 0 || shared <= static_cast<int>(length)) continue;
    if (sequence.kv->recurrent() == nullptr) return true;
    if (shared <= other.kv->length()) continue;  // the states there are gone
    other.kv->expect_reuse_at(shared);
    return true;
  }
  return false;
}

TreeShape Session::Impl::share_sweep() {
  int trees = 0, prompts = 0;
  for (Sequence& sequence : running) {
    turn(sequence);
    if (!sequence.unread().empty()) reuse_prefix(sequence);
    sequence.reads = static_cast<int>(sequence.unread().size());
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

void Session::Impl::price_trees(const TreeShape& shape) {
  if (m.plan.policy.growth.kind != Growth::Kind::kValued || !m.plan.cost) return;
  StepQuery step;
  step.shape = &shape;
  step.tokens = recent.mean(m.plan.prediction ? m.plan.prediction->best.tokens : 1);
  step.sequences = 0;
  for (const Sequence& sequence : running) {
    if (!sequence.has_tree) continue;
    ++step.sequences;
    step.context += static_cast<double>(sequence.text.size());
  }
  step.context /= step.sequences;
  step.sampled = m.sampled;
  step.valued = valued_forwards(shape, step.tokens);
  GrowthPrices prices = growth_prices(*m.plan.cost, m.plan.weights, step, step.tokens);
  if (!m.plan.adaptive) prices.trees.clear();  // a size that is asked for is grown
  m.drafter->set_prices(prices);
}

bool Session::Impl::wants_guesses(const Sequence& sequence, const TreeShape& shape) const {
  const ModelConfig& config = m.models.target.config();
  const bool by_shape = m.plan.policy.growth.kind == Growth::Kind::kShape;
  const int deepest = (by_shape ? shape.levels() : shape.size()) - 1;
  const std::size_t grown = sequence.text.size() + static_cast<std::size_t>(deepest);
  return sequence.wants_guesses() &&
         config.text_length(grown) == config.text_length(sequence.text.size());
}

std::vector<Draft> Session::Impl::grow(const TreeShape& shape, const std::stop_token& stop) {
  std::vector<Draft> drafts;
  std::vector<DraftRequest> requests;
  for (Sequence& s : running) {
    s.guesses = s.has_tree && wants_guesses(s, shape);
    if (s.has_tree) {
      drafts.push_back(root_only(s.text.back()));
      if (s.guesses)
        requests.push_back({s.draft.get(), s.text, s.request.sampling, s.rng(),
                            s.takes_best_tokens(!m.plan.inexact), s.editor.get()});
    } else if (s.draft && s.reads > 0 && s.wants_guesses()) {
      const auto read = static_cast<std::size_t>(s.kv->length() + s.reads);
      m.drafter->read(*s.draft, std::span(s.text).first(read), *m.compute, stop);
    }
  }
  if (shape.size() == 1 || requests.empty()) return drafts;
  price_trees(shape);
  std::vector<Draft> grown = m.drafter->grow(requests, shape, *m.compute, stop);
  auto next = grown.begin();
  auto draft = drafts.begin();
  for (const Sequence& s : running) {
    if (!s.has_tree) continue;
    if (s.guesses) *draft = std::move(*next++);
    ++draft;
  }
  return drafts;
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
  std::vector<TokenScore> scores;   // of all their prompts
  auto draft = drafts.begin();
  for (Sequence& sequence : running) {
    last.prompt_rows += sequence.reads;
    const std::size_t first_score = scores.size();
    if (sequence.has_tree)
      storage.emplace_back(sequence, draft++->tree, rows).add_scores(sequence, scores);
    else if (sequence.reads > 0)
      storage.emplace_back(sequence, sequence.reads, rows).add_scores(sequence, scores);
    sequence.scores = scores.size() - first_score;
  }
  const ConstTensorView logits = m.target->forward(rows, scores, stop, on_unit);
  const ConstTensorView read = m.target->logit_inputs();

  std::vector<std::pair<Sequence*, const Draft*>> failed;
  std::vector<std::int32_t> kept;  // rows of the sweep
  std::int32_t swept = 0;
  std::int64_t row = 0;
  std::size_t gained = 0;
  std::span<TokenScore> left = scores;
  draft = drafts.begin();
  for (Sequence& sequence : running) {
    for (int i = 0; i < sequence.reads; ++i) kept.push_back(swept++);
    const Draft* const grown_draft = sequence.has_tree ? &*draft++ : nullptr;
    const int nodes = grown_draft == nullptr ? 0 : grown_draft->tree.size();
    const std::span<TokenScore> own = left.first(sequence.scores);
    left = left.subspan(sequence.scores);
    try {
      sequence.enter(own);
      if (grown_draft == nullptr) {
        read_on(sequence);
      } else {
        gained += conclude(sequence, *grown_draft, logits.rows(row, nodes), read.rows(row, nodes));
        for (const NodeId node : sequence.path) kept.push_back(swept + node);
      }
    } catch (const NotFinite&) {
      failed.emplace_back(&sequence, grown_draft);
    } catch (const NothingAllowed& nothing) {
      sequence.error = nothing.what();
    }
    row += nodes;
    swept += nodes;
  }
  for (Sequence& sequence : running)
    for (const Sequence& other : running)
      if (sequence.is_scored_by(other)) sequence.take_scores(other);
  m.target->keep_rows(kept);
  m.compute->synchronize();

  if (!drafts.empty() && swept_shape.size() > 1)
    recent.add(static_cast<double>(gained) / static_cast<double>(drafts.size()));
  account_for(begun, grown, gained);
  for (const auto& [sequence, tree] : failed) fail(*sequence, tree, stop);
}

void Session::Impl::read_on(Sequence& sequence) {
  sequence.kv->commit(counting(0, static_cast<std::size_t>(sequence.reads)), *m.compute);
  sequence.kv->share(sequence.text);
  if (sequence.report.steps == 0) sequence.report.prompt_read = sequence.kv->length();
}

void Session::Impl::account_for(Clock::time_point begun, Clock::time_point grown,
                                std::size_t gained) {
  const auto ended = Clock::now();
  last.time = ended - begun;
  last.compute = m.target->times().total();
  last.drafting = grown - begun;
  const LinkReport moved = m.link();
  last.link = moved - std::exchange(reported_link, moved);
  last.pool = m.pool();
  for (std::size_t rank = 0; rank < reported_ranks.size(); ++rank) {
    const RankFigures& now = m.cluster->figures()[rank];
    last.ranks.push_back(now - std::exchange(reported_ranks[rank], now));
  }
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
  const auto gain = static_cast<int>(sequence.unread().size() + gained.size());
  sequence.missed = last.tree_nodes == 1 ? sequence.missed + gain : 0;
  sequence.kv->commit(counting(0, sequence.unread().size()), *m.compute);
  sequence.kv->commit(verdict.path, *m.compute);
  sequence.path = verdict.path;
  if (draft.tree.size() > 1 || (m.drafter && m.drafter->reads_hidden()))
    m.drafter->conclude(*sequence.draft, draft, verdict, read, *m.compute);
  const bool teaches = !synthetic && !sequence.editor && !m.plan.inexact &&
                       draft.drawing == m.plan.policy.drawing &&
                       (m.plan.policy.growth.kind == Growth::Kind::kShape ||
                        m.plan.policy.growth.kind == Growth::Kind::kValued);
  const bool grown_by_model = m.plan.draft && !m.plan.draft->has_heads() && sequence.guesses;
  const auto tell = [&](int level, int children, int accepted) {
    if (sequence.tracker) sequence.tracker->observe(level, children, accepted);
    if (teaches) sequence.shown.observe(level, children, accepted);
  };
  if (draft.best.empty())
    observe(draft.tree, verdict, grown_by_model ? last.tree_nodes : 0, last.tree_levels, tell);
  else
    observe_ranks(draft, verdict, tell);
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

void Session::Impl::fail(Sequence& sequence, const Draft* draft, const std::stop_token& stop) {
  std::vector<SequenceRows> rows;
  const RowsOfSequence again = draft != nullptr ? RowsOfSequence(sequence, draft->tree, rows)
                                                : RowsOfSequence(sequence, sequence.reads, rows);
  try {
    m.target->refuse_not_finite(rows, stop);
  } catch (const Stopped&) {  // the others have gained already: the next sweep is what stops
    sequence.error = NotFinite().what();
  } catch (const Error& error) {
    sequence.error = error.what();
  }
}

}  // namespace canopy
