#include "src/measure/acceptance.h"

#include <algorithm>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/engine/engine_parts.h"

namespace canopy {
namespace {

/// A continuation in the making.
struct Probe {
  std::size_t index = 0;  // of its prompt and its run
  KvCaches::Loan kv;      // the target's
  std::unique_ptr<DraftState> draft;
  std::vector<TokenId> text;
  std::size_t run = 0;         // tokens of it that the models have run
  WeightedStep weighted = {};  // of the next position

  std::span<const TokenId> pending() const { return std::span(text).subspan(run); }
};

class Measurement {
 public:
  Measurement(Engine& engine, const AcceptanceRequest& request,
              const std::function<void(const AcceptanceProgress&)>& on_progress,
              std::stop_token stop)
      : models_(engine.models()),
        shape_(engine.plan().policy.shape),
        m_(engine.parts()),
        request_(request),
        on_progress_(on_progress),
        stop_(std::move(stop)),
        runs_(request.prompts.size()) {
    progress_.layers = models_.target.config().layers;
  }

  std::vector<AcceptanceRun> run() {
    while (next_ < runs_.size() && !m_.target().kv().all_lent()) probes_.push_back(begin());
    while (!probes_.empty()) {
      sweep();
      replace_finished();
      tell(progress_.layers);
    }
    return std::move(runs_);
  }

 private:
  Probe begin() {
    const PromptCut& prompt = request_.prompts[next_];
    runs_[next_].text = prompt.text;
    return Probe{next_++, m_.target().kv().lend(), m_.drafter()->open(), prompt.tokens, 0};
  }
  StepRng rng(const Probe& probe) const {
    return {request_.seed, static_cast<std::uint32_t>(probe.index),
            runs_[probe.index].positions.size()};
  }
  void tell(int layer) {
    progress_.layer = layer;
    progress_.since_start = since(start_);
    if (on_progress_) on_progress_(progress_);
  }
  void sweep();
  /// Tries what was drafted for one text against the row of logits after the text; the text gains a
  /// token. `rows`: those that the target ran of it.
  void judge(Probe& probe, const Draft& draft, const ConstTensorView& row,
             const SequenceRows& rows);
  /// Texts that are long enough give their place to the next prompts.
  void replace_finished();

  const ModelFiles& models_;
  const TreeShape& shape_;
  EngineParts m_;
  const AcceptanceRequest& request_;
  const std::function<void(const AcceptanceProgress&)>& on_progress_;
  const std::stop_token stop_;
  const Clock::time_point start_ = Clock::now();
  std::vector<AcceptanceRun> runs_;
  std::size_t next_ = 0;  // prompt
  std::vector<Probe> probes_;
  AcceptanceProgress progress_;
};

void Measurement::sweep() {
  std::vector<DraftRequest> grow;
  for (const Probe& probe : probes_)
    grow.push_back({probe.draft.get(), probe.text, request_.sampling, rng(probe)});
  const std::vector<Draft> drafts = m_.drafter()->grow(grow, shape_, m_.target().stream(), stop_);

  std::vector<std::vector<std::int32_t>> positions;
  std::vector<std::int32_t> last(probes_.size());
  std::vector<SequenceRows> parts;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    const ModelConfig& config = models_.target.config();
    if (probes_[i].kv->turn_to(config.text_length(probes_[i].text.size()))) probes_[i].run = 0;
    const auto pending = probes_[i].pending();
    positions.push_back(counting(static_cast<int>(probes_[i].run), pending.size()));
    last[i] = static_cast<std::int32_t>(pending.size()) - 1;
    parts.push_back({{pending, positions[i], {}, 0, {&last[i], 1}}, probes_[i].kv.get(), 0});
  }
  const ConstTensorView logits =
      m_.target().forward(parts, stop_, [&](const Unit& unit) { tell(unit.layer); });
  for (std::size_t i = 0; i < probes_.size(); ++i)
    judge(probes_[i], drafts[i], logits.rows(static_cast<std::int64_t>(i), 1), parts[i]);
  ++progress_.sweeps;
}

void Measurement::judge(Probe& probe, const Draft& draft, const ConstTensorView& row,
                        const SequenceRows& rows) {
  Trial trial;
  try {
    trial = m_.verifier().try_children(draft, row, request_.sampling, rng(probe),
                                       m_.target().stream(), probe.weighted.weight);
  } catch (const NotFinite&) {
    m_.target().refuse_not_finite({&rows, 1}, stop_);
  }
  // Every node is scratch until it is committed; these stay where they are.
  probe.kv->commit(counting(0, probe.pending().size()), m_.target().stream());
  m_.drafter()->conclude(*probe.draft, draft, {{0}, trial.token}, {}, m_.target().stream());
  probe.run = probe.text.size();
  probe.text.push_back(trial.token);
  // A draft without a model may have fewer children: those that are not there are not accepted.
  trial.chances.accept.resize(static_cast<std::size_t>(shape_.size()) - 1, 0.0);
  AcceptanceRun::Position here{std::move(trial.chances.accept), trial.taken, false, trial.overlap};
  if (!trial.weighted.empty()) {
    trial.weighted.resize(here.accept.size(), 0.0);
    here.weighted = probe.weighted;
    here.weighted.accept = std::move(trial.weighted);
    probe.weighted = here.weighted.next();
  }
  runs_[probe.index].positions.push_back(std::move(here));
  ++progress_.positions;
}

void Measurement::replace_finished() {
  for (Probe& probe : probes_) {
    AcceptanceRun& run = runs_[probe.index];
    if (std::ssize(run.positions) < request_.new_tokens &&
        !models_.tokenizer->ends_text(probe.text.back()))
      continue;
    const std::vector<bool> loops = find_loops(probe.text);
    const std::size_t prompt = request_.prompts[probe.index].tokens.size();
    for (std::size_t k = 0; k < run.positions.size(); ++k)
      run.positions[k].in_loop = loops[prompt + k];
    ++progress_.runs_done;
    probe = Probe{};  // its caches are free again
    if (next_ < runs_.size()) probe = begin();
  }
  std::erase_if(probes_, [](const Probe& probe) { return probe.kv == nullptr; });
}

}  // namespace

std::vector<AcceptanceRun> measure_acceptance(
    Engine& engine, const AcceptanceRequest& request,
    const std::function<void(const AcceptanceProgress&)>& on_progress, std::stop_token stop) {
  const Plan& plan = engine.plan();
  require(plan.probe && engine.parts().drafter(), "the plan was not made to measure acceptance");
  for (const PromptCut& prompt : request.prompts)
    if (prompt.tokens.empty() || std::ssize(prompt.tokens) > plan.max_prompt)
      throw Error("a prompt of " + std::to_string(prompt.tokens.size()) +
                  " tokens does not fit a plan for 1 to " + std::to_string(plan.max_prompt));
  require(request.new_tokens >= 1 && plan.max_prompt + request.new_tokens <= plan.slots,
          "the plan has no room for continuations of this length");
  return Measurement(engine, request, on_progress, std::move(stop)).run();
}

}  // namespace canopy
