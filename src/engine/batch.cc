#include "src/engine/batch.h"

#include <utility>

#include "src/base/error.h"
#include "src/engine/runtime.h"

namespace canopy {

namespace {

void note_shape(const SweepReport& sweep, BatchReport& batch) {
  if (batch.shapes.empty() || batch.shapes.back().size != sweep.tree_nodes ||
      batch.shapes.back().levels != sweep.tree_levels)
    batch.shapes.push_back({batch.sweeps, sweep.tree_nodes, sweep.tree_levels});
}

/// The requests of a batch in a session: their reports, and the first error.
class Texts {
 public:
  Texts(Session& session, std::span<const Request> requests, const GenerateEvents& events,
        BatchReport& batch)
      : session_(session), batch_(batch) {
    batch.texts.resize(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      RequestEvents one;
      if (events.on_token)
        one.on_token = [&events, i](TokenId token, const TokenReport*) {
          return events.on_token(i, token);
        };
      if (events.on_read)
        one.on_read = [&events, i](std::span<const float> rows, std::span<const TokenId> tokens) {
          events.on_read(i, rows, tokens);
        };
      one.on_end = [this, &events, i](const TextReport& report) {
        batch_.texts[i] = report;
        ++done_;
        if (events.on_text) events.on_text(i, report);
      };
      one.on_error = [this](const std::string& what) {
        if (error_.empty()) error_ = what;
      };
      tickets_.push_back(session.admit(requests[i], std::move(one)));
    }
  }
  int done() const { return done_; }
  const std::string& error() const { return error_; }
  /// Keeps what there is of the texts that have not ended.
  void keep_the_others() {
    for (std::size_t i = 0; i < tickets_.size(); ++i)
      if (const TextReport* report = session_.so_far(tickets_[i])) batch_.texts[i] = *report;
  }

 private:
  Session& session_;
  BatchReport& batch_;
  std::vector<Ticket> tickets_;
  int done_ = 0;
  std::string error_;
};

}  // namespace

BatchReport run_batch(Runtime& m, std::span<const Request> requests, const GenerateEvents& events,
                      std::stop_token stop, std::optional<Acceptance> synthetic) {
  LinkReport link = m.link();  // by the last step that ended; no later than the session's own start
  Session session(m, std::move(synthetic));
  BatchReport batch;
  Texts texts(session, requests, events, batch);

  const auto joules = [&] { return m.energy != nullptr ? m.energy->read() : Joules(); };
  Joules energy = joules();
  StepProgress progress;
  progress.layers = m.models.target.config().layers;
  while (true) {
    const auto start = Clock::now();
    const auto tell = [&](int layer, Seconds time, const LinkReport& of_step) {
      if (!events.on_step) return;
      progress.step = batch.sweeps + 1;
      progress.total_tokens = batch.tokens;
      progress.texts_done = texts.done();
      progress.layer = layer;
      progress.link = of_step;
      progress.time = time;
      progress.since_start = batch.prefill + batch.decode + time;
      events.on_step(progress);
    };
    const auto on_unit = [&](const Unit& unit) { tell(unit.layer, since(start), m.link() - link); };
    try {
      if (!session.step(stop, on_unit)) break;
    } catch (const Stopped&) {
      texts.keep_the_others();
      break;
    }
    if (!texts.error().empty()) throw Error(texts.error());
    const SweepReport& sweep = session.last_sweep();
    if (sweep.texts == 0) continue;  // the KV pool was full: somebody waits again
    link += sweep.link;
    if (m.drafter) note_shape(sweep, batch);
    batch.tokens += sweep.tokens;
    progress.new_tokens = sweep.tokens;
    progress.compute = sweep.compute;
    progress.drafting = sweep.drafting;
    progress.trees = sweep.trees;
    progress.ranks = sweep.ranks;
    tell(progress.layers, sweep.time, sweep.link);
    progress.trees = {};
    progress.new_tokens = 0;
    progress.compute = progress.drafting = Seconds(0);
    if (m.energy != nullptr) m.energy->keep_up();
    if (batch.sweeps++ == 0) {
      batch.prefill = sweep.time;
      const Joules used = joules();
      batch.prefill_energy = used - std::exchange(energy, used);
      continue;
    }
    batch.decode += sweep.time;
    batch.decode_tokens += sweep.tokens;
    batch.link += sweep.link;
    batch.compute += sweep.compute;
    batch.drafting += sweep.drafting;
  }
  batch.learned = session.learned();
  (batch.sweeps == 0 ? batch.prefill_energy : batch.decode_energy) = joules() - energy;
  return batch;
}

}  // namespace canopy
