#include "src/engine/ranks/follow.h"

#include <utility>

#include "src/base/error.h"
#include "src/engine/ranks/sweep_messages.h"
#include "src/engine/runtime.h"

namespace canopy {

void follow(ModelFiles models, const EngineOptions& options, const LoadProgress& progress,
            std::stop_token stop) {
  require(options.cluster != nullptr && options.cluster->share().rank != 0,
          "a rank that follows is one of several, and not the first");
  Cluster& cluster = *options.cluster;
  models.draft.reset();
  models.inner.reset();
  models.heads.reset();
  Runtime m(std::move(models), options, progress, stop);
  std::vector<KvCaches::Loan> caches;
  for (int i = 0; i < m.plan.max_sequences; ++i) caches.push_back(m.target->kv().lend());
  const auto cache = [&](std::size_t i) -> KvCache& {
    require(i < caches.size(), "a sweep of more texts than the ranks have agreed on");
    return *caches[i];
  };
  while (true) {
    const RankMessage message = read_message(cluster.announce({}));
    if (message.command == RankCommand::kEnd) return;
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

void end_followers(Cluster& cluster) { cluster.announce(end_message()); }

}  // namespace canopy
