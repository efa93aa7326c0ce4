#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/cost_model.h"
#include "src/base/types.h"
#include "src/cli/options/flags.h"
#include "src/cluster/agreement.h"
#include "src/cluster/cluster.h"
#include "src/engine/engine.h"

namespace canopy::cli {

/// --shares, --rank-timeout and --disk-limit: of commands that several processes share.
struct RankOptions {
  std::optional<std::vector<std::int64_t>> shares;
  std::optional<double> timeout;            // seconds
  std::optional<std::uint64_t> disk_limit;  // bytes per second

  Flags flags();
  FlagValue<std::string> shares_flag();
  FlagValue<std::string> disk_limit_flag();
  /// Makes an engine one of the cluster's, and holds its reads to the limit.
  void put_into(EngineOptions& engine, Cluster* cluster) const;
  ClusterOptions options() const;
  /// Returns the rows of a rank. Throws UsageError unless there are as many shares as ranks.
  Share share_of(int rank, int ranks) const;
};

/// --ranks, --network, --latency, --shares, --disk-limit: of canopy plan, for machines that are not
/// here.
struct PlannedRanks {
  int ranks = 1;
  std::optional<double> bits_per_second, latency;  // latency in microseconds
  RankOptions own;

  Flags flags();
  void check() const;  // throws UsageError where the flags contradict each other
  Share share() const { return own.share_of(0, ranks); }
  Network network(const Checkpoint& target) const;
};

/// Throws UsageError if one of these flags cannot be kept where `ranks` processes run.
void check_shared(const GivenFlags& given, int ranks);

/// Returns the flags that all ranks must have alike: those about one machine are left out.
std::vector<SharedFact> flags_of_all(const GivenFlags& given);

}  // namespace canopy::cli
