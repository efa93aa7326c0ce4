#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/types.h"
#include "src/cli/options/flags.h"
#include "src/speculation/logit_edits.h"

namespace canopy::cli {

/// How tokens are drawn.
struct SamplingOptions {
  Sampling sampling;
  LogitEditing edits;                 // of commands that offer edit_flags()
  std::optional<std::uint64_t> seed;  // nothing: the user leaves it open

  /// --temp, --top-k, --top-p, --min-p, --typical, --seed.
  Flags flags();
  /// The penalties and --logit-bias.
  Flags edit_flags();
  /// Throws UsageError where --logit-bias names a token that is none.
  void check_tokens(int vocab) const;
};

}  // namespace canopy::cli
