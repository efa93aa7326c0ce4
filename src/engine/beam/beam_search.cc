#include "src/engine/beam/beam_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/engine/runtime.h"
#include "src/speculation/token_tree.h"

namespace canopy {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// The nodes of a sweep: the last token that all beams share, their tokens after it, and what the
/// draft puts below.
struct Nodes {
  std::vector<TokenId> token;
  std::vector<NodeId> parent;
  std::vector<int> depth;
  std::map<std::pair<NodeId, TokenId>, NodeId> child;

  explicit Nodes(TokenId root) : token{root}, parent{-1}, depth{0} {}
  int size() const { return static_cast<int>(token.size()); }
  NodeId find(NodeId below, TokenId what) const {
    const auto found = child.find({below, what});
    return found == child.end() ? -1 : found->second;
  }
  NodeId add(NodeId below, TokenId what) {
    if (const NodeId known = find(below, what); known >= 0) return known;
    const NodeId made = size();
    token.push_back(what);
    parent.push_back(below);
    depth.push_back(depth[at(below)] + 1);
    child[{below, what}] = made;
    return made;
  }
};

/// One of the models, and what it has run of the text.
class Reader {
 public:
  Reader(Runtime& m, Transformer& model, KvCache& kv, std::size_t prompt)
      : m_(m), model_(model), kv_(kv) {
    kv_.truncate(0);
    kv_.turn_to(model.config().text_length(prompt));
  }

  /// Runs nodes [first, all) below the last token of `text`, with first == 0 also what it has not
  /// read before. Returns the logits of the nodes `wanted`, ascending.
  std::vector<float> run(std::span<const TokenId> text, const Nodes& nodes, int first,
                         std::span<const NodeId> wanted, const std::stop_token& stop,
                         const Transformer::OnUnit& on_unit = {}) {
    const int base = kv_.length();
    if (first == 0) behind_ = static_cast<int>(text.size()) - 1 - base;
    const std::vector<TokenId> chain = known(text.subspan(at(base), at(behind_)));
    const std::vector<TokenId> tokens = known(std::span(nodes.token).subspan(at(first)));
    const std::vector<std::int32_t> chain_position = counting(base, chain.size());
    std::vector<std::int32_t> position, logit_rows;
    for (int i = first; i < nodes.size(); ++i)
      position.push_back(base + behind_ + nodes.depth[at(i)]);
    for (const NodeId node : wanted) logit_rows.push_back(node - first);
    const int count = nodes.size() - first;
    const auto bits = ancestor_bits(nodes.parent, first, count);
    std::vector<SequenceRows> rows;
    if (first == 0 && behind_ > 0) rows.push_back({{chain, chain_position, {}, 0, {}}, &kv_, 0});
    rows.push_back({{tokens, position, bits, first, logit_rows}, &kv_, behind_});
    const ConstTensorView logits = model_.forward(rows, *m_.compute, stop, on_unit);
    const std::vector<float> values = m_.target->download_rows(logits, counting(0, wanted.size()));
    const bool finite =
        std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    if (!finite && &model_ == &m_.target->transformer()) m_.target->refuse_not_finite(rows, stop);
    require(finite, kDraftNotFinite);
    rows_ += count + (first == 0 ? behind_ : 0);
    run_ = nodes.size();
    return values;
  }

  /// The text goes on by this path of nodes, from the root; those that were not run are read later.
  void commit(std::span<const NodeId> path) {
    kv_.commit(counting(0, at(std::exchange(behind_, 0))), *m_.compute);
    std::vector<NodeId> known;
    for (const NodeId node : path)
      if (node < run_) known.push_back(node);
    kv_.commit(known, *m_.compute);
  }
  std::int64_t rows() const { return rows_; }

 private:
  /// A token that a draft has no row for is run as another.
  std::vector<TokenId> known(std::span<const TokenId> tokens) const {
    std::vector<TokenId> out(tokens.begin(), tokens.end());
    for (TokenId& token : out)
      if (token >= model_.config().vocab) token = 0;
    return out;
  }

  Runtime& m_;
  Transformer& model_;
  KvCache& kv_;
  int behind_ = 0;  // tokens of the text before the root that the last run read
  int run_ = 0;     // nodes of the last run
  std::int64_t rows_ = 0;
};

/// Rows of a matrix that was downloaded whole.
std::vector<std::span<const float>> rows_of(std::span<const float> values, std::size_t columns,
                                            std::size_t use) {
  std::vector<std::span<const float>> rows;
  for (std::size_t i = 0; i < values.size(); i += columns) rows.push_back(values.subspan(i, use));
  return rows;
}

std::vector<TokenId> end_tokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> ends;
  for (TokenId token = 0; token < tokenizer.vocab(); ++token)
    if (tokenizer.ends_text(token)) ends.push_back(token);
  return ends;
}

class Search {
 public:
  Search(Runtime& m, const BeamRequest& request)
      : m_(m),
        room_(*m.plan.beams),
        text_(request.prompt),
        ends_(request.ignore_end ? std::vector<TokenId>() : end_tokens(*m.models.tokenizer)),
        beams_({room_.beams, request.length_penalty, request.max_new_tokens, room_.joint}, ends_),
        kv_(m.target->kv().lend()),
        target_(m, m.target->transformer(), *kv_, text_.size()) {
    if (m.draft) draft_.emplace(m, *m.draft, *m.draft_cache, text_.size());
  }

  bool done() const { return beams_.done(); }
  /// One sweep; how many levels it gained.
  int step(const std::stop_token& stop, const Transformer::OnUnit& on_unit);
  /// Into the report: what was found, and how many rows that took.
  void finish(BeamReport& report) const {
    report.texts = beams_.texts();
    report.target_rows = target_.rows();
    if (draft_) report.drafted_rows = draft_->rows();
  }

 private:
  /// The beams' ends among the nodes, which gain them.
  std::vector<NodeId> hang_beams(Nodes& nodes) const;
  void draft(Nodes& nodes, std::span<const NodeId> ends, const std::stop_token& stop);
  /// Appends what all beams have in common to the text.
  void join(const Nodes& nodes);

  Runtime& m_;
  const BeamRoom room_;
  std::vector<TokenId> text_;  // what all beams share; the last token is the root
  int shared_ = 0;             // tokens of it after the prompt
  const std::vector<TokenId> ends_;
  BeamSet beams_;
  const KvCaches::Loan kv_;
  Reader target_;
  std::optional<Reader> draft_;
};

std::vector<NodeId> Search::hang_beams(Nodes& nodes) const {
  const auto& live = beams_.live();
  std::vector<NodeId> ends(live.size(), 0);
  for (std::size_t k = at(shared_); k < live.front().tokens.size(); ++k)
    for (std::size_t i = 0; i < live.size(); ++i) ends[i] = nodes.add(ends[i], live[i].tokens[k]);
  return ends;
}

void Search::draft(Nodes& nodes, std::span<const NodeId> ends, const std::stop_token& stop) {
  const std::size_t columns = at(m_.draft->config().vocab);
  const std::size_t common = std::min(columns, at(m_.models.target.config().vocab));
  std::vector<NodeId> front(ends.begin(), ends.end());
  std::vector<double> sums;
  for (const BeamSet::Beam& beam : beams_.live()) sums.push_back(beam.log_probability);
  for (int level = 0, first = 0; level < room_.levels; ++level) {
    const std::vector<float> logits = draft_->run(text_, nodes, first, front, stop);
    first = nodes.size();
    std::vector<NodeId> next;
    std::vector<double> next_sums;
    for (const BeamCandidate& one :
         heaviest(sums, rows_of(logits, columns, common), at(room_.draft_beams), ends_)) {
      next.push_back(nodes.add(front[at(one.beam)], one.token));
      next_sums.push_back(one.log_probability);
    }
    if (next.empty()) return;  // every token ends the text
    front = std::move(next);
    sums = std::move(next_sums);
  }
}

int Search::step(const std::stop_token& stop, const Transformer::OnUnit& on_unit) {
  Nodes nodes(text_.back());
  std::vector<NodeId> ends = hang_beams(nodes);
  const int hung = nodes.size();
  if (draft_) draft(nodes, ends, stop);
  std::vector<NodeId> wanted = ends;
  for (NodeId node = hung; node < nodes.size(); ++node) wanted.push_back(node);
  const std::vector<float> logits = target_.run(text_, nodes, 0, wanted, stop, on_unit);
  const std::size_t columns = at(m_.models.target.config().vocab);
  const auto rows = rows_of(logits, columns, columns);
  const auto row_of = [&](NodeId node) {
    return rows[at(
        static_cast<int>(std::lower_bound(wanted.begin(), wanted.end(), node) - wanted.begin()))];
  };

  int levels = 0;
  while (!beams_.done() && std::find(ends.begin(), ends.end(), -1) == ends.end()) {
    std::vector<std::span<const float>> next;
    for (const NodeId node : ends) next.push_back(row_of(node));
    beams_.extend(next);
    ++levels;
    std::vector<NodeId> gone_on;
    for (const BeamSet::Beam& beam : beams_.live())
      gone_on.push_back(nodes.find(ends[at(beam.parent)], beam.tokens.back()));
    ends = std::move(gone_on);
  }
  if (!beams_.done()) join(nodes);
  return levels;
}

void Search::join(const Nodes& nodes) {
  const auto& live = beams_.live();
  std::vector<NodeId> path;  // nodes that come before the new root
  NodeId last = 0;
  for (std::size_t k = at(shared_); k < live.front().tokens.size(); ++k) {
    const TokenId token = live.front().tokens[k];
    if (!std::all_of(live.begin(), live.end(),
                     [&](const BeamSet::Beam& beam) { return beam.tokens[k] == token; }))
      break;
    path.push_back(last);
    last = nodes.find(last, token);
    text_.push_back(token);
  }
  shared_ += static_cast<int>(path.size());
  target_.commit(path);
  if (draft_) draft_->commit(path);
}

void require_room(const Plan& plan, const ModelConfig& config, const BeamRequest& request) {
  require(plan.beams.has_value(), "the plan was not made for a beam search");
  const auto prompt = static_cast<int>(request.prompt.size());
  if (prompt < 1 || prompt > plan.max_prompt || request.max_new_tokens < 1 ||
      prompt + request.max_new_tokens > plan.context ||
      plan.beams->nodes() < plan.beams->with_tokens(request.max_new_tokens).nodes())
    throw Error("a prompt of " + std::to_string(prompt) + " tokens and " +
                std::to_string(request.max_new_tokens) + " more do not fit this plan");
  const auto longest = request.prompt.size() + at(request.max_new_tokens) - 1;  // that is read
  if (config.text_length(request.prompt.size()) != config.text_length(longest))
    throw Error("beams cannot grow beyond " + std::to_string(config.rope_original) +
                " tokens from a prompt of " + std::to_string(prompt) +
                ": the model has other rotary frequencies there (longrope); ask for fewer tokens, "
                "or for no beams");
}

}  // namespace

BeamReport beam_search(Runtime& m, const BeamRequest& request,
                       const std::function<void(const StepProgress&)>& on_step,
                       std::stop_token stop) {
  require_room(m.plan, m.models.target.config(), request);
  Search search(m, request);
  BeamReport report;
  BatchReport& batch = report.batch;
  TextReport text;
  LinkReport link = m.link();
  const auto joules = [&] { return m.energy != nullptr ? m.energy->read() : Joules(); };
  Joules energy = joules();
  StepProgress progress;
  progress.layers = m.models.target.config().layers;
  while (!search.done()) {
    const auto begun = Clock::now();
    const auto tell = [&](int layer) {
      progress.step = batch.sweeps + 1;
      progress.total_tokens = batch.tokens;
      progress.layer = layer;
      progress.link = m.link() - link;
      progress.time = since(begun);
      progress.since_start = batch.prefill + batch.decode + progress.time;
      if (on_step) on_step(progress);
    };
    progress.new_tokens = search.step(stop, [&](const Unit& unit) { tell(unit.layer); });
    batch.tokens += progress.new_tokens;
    text.step_tokens.push_back(progress.new_tokens);
    text.step_ends.push_back(batch.prefill + batch.decode + since(begun));
    const Seconds compute = m.target->times().total();
    tell(progress.layers);
    if (m.energy != nullptr) m.energy->keep_up();
    const LinkReport moved = m.link();
    if (batch.sweeps++ == 0) {
      batch.prefill = since(begun);
      const Joules used = joules();
      batch.prefill_energy = used - std::exchange(energy, used);
    } else {
      batch.decode += since(begun);
      batch.decode_tokens += progress.new_tokens;
      batch.link += moved - link;
      batch.compute += compute;
    }
    progress.new_tokens = 0;
    link = moved;
  }
  batch.decode_energy = joules() - energy;
  search.finish(report);
  const FoundText& best = report.texts.front();
  text.tokens = best.tokens;
  text.finish_reason = best.ended ? "stop" : "length";
  text.prompt_read = static_cast<int>(request.prompt.size());
  text.steps = batch.sweeps;
  batch.texts.push_back(std::move(text));
  return report;
}

}  // namespace canopy
