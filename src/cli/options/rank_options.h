#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/types.h"
#include "src/cli/options/flags.h"
#include "src/cluster/agreement.h"
#include "src/cluster/cluster.h"

namespace canopy::cli {

/// --shares and --rank-timeout: of commands that several processes share.
struct RankOptions {
  std::optional<std::vector<std::int64_t>> shares;
  std::optional<double> timeout;  // seconds

  Flags flags();
  ClusterOptions options() const;
  /// Returns the rows of a rank. Throws UsageError unless there are as many shares as ranks.
  Share share_of(int rank, int ranks) const;
};

/// Throws UsageError if one of these flags cannot be kept where `ranks` processes run.
void check_shared(const GivenFlags& given, int ranks);

/// Returns the flags that all ranks must have alike: those about one machine are left out.
std::vector<SharedFact> flags_of_all(const GivenFlags& given);

}  // namespace canopy::cli
