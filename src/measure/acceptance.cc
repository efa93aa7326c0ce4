#include "src/measure/acceptance.h"

#include <algorithm>
#include <utility>

#include "src/base/counting.h"
#include "src/base/error.h"
#include "src/engine/runtime.h"

namespace canopy {
namespace {

/// A continuation in the making.
struct Probe {
  std::size_t index = 0;  // of its prompt and its run
  KvCache* kv = nullptr;  // the target's
  std::unique_ptr<DraftState> draft;
  std::vector<TokenId> text;
  std::size_t run = 0;  // tokens of it that the models have run

  std::span<const TokenId> pending() const { return std::span(text).subspan(run); }
};

}  // namespace

std::vector<AcceptanceRun> measure_acceptance(
    Engine& engine, const AcceptanceRequest& request,
    const std::function<void(const AcceptanceProgress&)>& on_progress, std::stop_token stop) {
  Runtime& m = engine.runtime();
  require(m.plan.probe && m.drafter, "the plan was not made to measure acceptance");
  for (const PromptCut& prompt : request.prompts)
    if (prompt.tokens.empty() || std::ssize(prompt.tokens) > m.plan.max_prompt)
      throw Error("a prompt of " + std::to_string(prompt.tokens.size()) +
                  " tokens does not fit a plan for 1 to " + std::to_string(m.plan.max_prompt));
  require(request.new_tokens >= 1 && m.plan.max_prompt + request.new_tokens <= m.plan.slots,
          "the plan has no room for continuations of this length");

  std::vector<AcceptanceRun> runs(request.prompts.size());
  std::size_t next = 0;
  const auto begin = [&](KvCache& kv) {
    kv.truncate(0);
    const PromptCut& prompt = request.prompts[next];
    runs[next].text = prompt.text;
    return Probe{next++, &kv, m.drafter->open(), prompt.tokens, 0};
  };
  std::vector<Probe> probes;
  for (const auto& kv : m.caches)
    if (next < runs.size()) probes.push_back(begin(*kv));

  AcceptanceProgress progress;
  progress.layers = m.models.target.config().layers;
  const auto start = Clock::now();
  const auto tell = [&](int layer) {
    progress.layer = layer;
    progress.since_start = since(start);
    if (on_progress) on_progress(progress);
  };
  while (!probes.empty()) {
    const auto rng = [&](const Probe& probe) {
      return StepRng{request.seed, static_cast<std::uint32_t>(probe.index),
                     runs[probe.index].positions.size()};
    };
    std::vector<DraftRequest> grow;
    for (const Probe& probe : probes)
      grow.push_back({probe.draft.get(), probe.text, request.sampling, rng(probe)});
    const std::vector<Draft> drafts = m.drafter->grow(grow, m.plan.policy.shape, *m.compute, stop);

    std::vector<std::vector<std::int32_t>> positions;
    std::vector<std::int32_t> last(probes.size());
    std::vector<SequenceRows> parts;
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const auto pending = probes[i].pending();
      positions.push_back(counting(static_cast<int>(probes[i].run), pending.size()));
      last[i] = static_cast<std::int32_t>(pending.size()) - 1;
      parts.push_back({{pending, positions[i], {}, 0, {&last[i], 1}}, probes[i].kv, 0});
    }
    const ConstTensorView logits =
        m.target->forward(parts, *m.compute, stop, [&](const Unit& unit) { tell(unit.layer); });

    for (std::size_t i = 0; i < probes.size(); ++i) {
      Probe& probe = probes[i];
      Trial trial;
      try {
        trial = m.verifier->try_children(drafts[i], logits.rows(static_cast<std::int64_t>(i), 1),
                                         request.sampling, rng(probe), *m.compute);
      } catch (const NotFinite&) {
        m.refuse_not_finite({&parts[i], 1}, stop);
      }
      // Every node is scratch until it is committed; these stay where they are.
      probe.kv->commit(counting(0, probe.pending().size()), *m.compute);
      m.drafter->conclude(*probe.draft, drafts[i], {{0}, trial.token}, {}, *m.compute);
      probe.run = probe.text.size();
      probe.text.push_back(trial.token);
      // A draft without a model may have fewer children: those that are not there are not accepted.
      trial.chances.accept.resize(static_cast<std::size_t>(m.plan.policy.shape.size()) - 1, 0.0);
      runs[probe.index].positions.push_back(
          {std::move(trial.chances.accept), trial.taken, false, trial.overlap});
      ++progress.positions;
    }
    ++progress.sweeps;

    for (Probe& probe : probes) {
      AcceptanceRun& run = runs[probe.index];
      if (std::ssize(run.positions) < request.new_tokens &&
          !m.models.tokenizer->ends_text(probe.text.back()))
        continue;
      const std::vector<bool> loops = find_loops(probe.text);
      const std::size_t prompt = request.prompts[probe.index].tokens.size();
      for (std::size_t k = 0; k < run.positions.size(); ++k)
        run.positions[k].in_loop = loops[prompt + k];
      ++progress.runs_done;
      KvCache& kv = *probe.kv;
      probe = Probe{};  // its draft's cache is free again
      if (next < runs.size()) probe = begin(kv);
    }
    std::erase_if(probes, [](const Probe& probe) { return probe.kv == nullptr; });
    tell(progress.layers);
  }
  return runs;
}

}  // namespace canopy
