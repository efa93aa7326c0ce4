#pragma once
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/cluster/cluster.h"
#include "src/cluster/thread_transport.h"

namespace canopy {

/// Runs `body` on ranks that are threads of this process, each of which leaves at the end, with
/// the error that it threw if any. Returns the errors by rank, "" of a rank that had none.
/// `wrap` may put a transport of the test's around a rank's.
inline std::vector<std::string> on_ranks(
    std::vector<std::int64_t> parts, const std::function<void(Cluster&)>& body,
    const ClusterOptions& options = {}, std::int64_t block = 128,
    const std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>& wrap = {}) {
  auto transports = make_thread_transports(static_cast<int>(parts.size()));
  std::vector<std::string> errors(parts.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
      threads.emplace_back([&, rank] {
        auto transport = std::move(transports[rank]);
        if (wrap) transport = wrap(std::move(transport));
        Cluster cluster(std::move(transport), {static_cast<int>(rank), parts, block}, options);
        try {
          body(cluster);
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
        if (!cluster.leave(errors[rank]).empty()) cluster.abort();
      });
  }
  return errors;
}

}  // namespace canopy
