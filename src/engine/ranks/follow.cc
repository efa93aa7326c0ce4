#include "src/engine/ranks/follow.h"

#include <utility>

#include "src/base/error.h"
#include "src/engine/ranks/sweep_messages.h"
#include "src/engine/runtime.h"

namespace canopy {

namespace {

/// Runs the sweeps of one engine. Returns the first command that is not for it.
RankCommand follow_engine(ModelFiles models, const EngineOptions& options,
                          const LoadProgress& progress, const std::stop_token& stop) {
  Runtime m(std::move(models), options, progress, stop);
  std::vector<KvCaches::Loan> caches;
  for (int i = 0; i < m.plan.max_sequences; ++i) caches.push_back(m.target->kv().lend());
  const auto cache = [&](std::size_t i) -> KvCache& {
    require(i < caches.size(), "a sweep of more texts than the ranks have agreed on");
    return *caches[i];
  };
  while (true) {
    const RankMessage message = read_message(options.cluster->announce({}));
    if (message.command == RankCommand::kLoad || message.command == RankCommand::kEnd)
      return message.command;
    if (message.command == RankCommand::kCheck) {
      options.cluster->collect({});
      continue;
    }
    for (std::size_t i = 0; i < message.caches.size(); ++i)
      cache(i).mirror(message.caches[i].state(), *m.compute);
    if (message.command == RankCommand::kKeep) {
      cache(0).commit(message.path, *m.compute);
      continue;
    }
    std::vector<SequenceRows> rows;
    for (const RankMessage::Part& part : message.parts)
      rows.push_back(part.rows(cache(static_cast<std::size_t>(part.cache))));
    try {
      m.target->forward(rows);
    } catch (const Stopped&) {  // on all ranks; the first says how it goes on
    }
  }
}

}  // namespace

void follow(const OpenTarget& open, const EngineOptions& options, const LoadProgress& progress,
            const std::stop_token& stop) {
  require(options.cluster != nullptr && options.cluster->share().rank != 0,
          "a rank that follows is one of several, and not the first");
  RankCommand next = read_message(options.cluster->announce({})).command;
  while (next == RankCommand::kLoad)
    next = follow_engine({open(), std::nullopt, nullptr}, options, progress, stop);
  require(next == RankCommand::kEnd, "a sweep of an engine that is not loaded");
}

void end_followers(Cluster& cluster) { cluster.announce(bare_message(RankCommand::kEnd)); }

}  // namespace canopy
