#pragma once
#include <optional>

#include "src/cli/options/decode_options.h"
#include "src/cli/options/flags.h"
#include "src/engine/plan/plan.h"

namespace canopy::cli {

/// --num-beams and what belongs to it.
struct BeamOptions {
  std::optional<int> beams, draft_beams, joint;
  std::optional<double> length_penalty;

  Flags flags();
  /// Throws UsageError where flags contradict each other: those of these options, and those of
  /// `decode` that a search has no use for.
  void check(const DecodeOptions& decode) const;
  /// The search where one is asked for, of texts of `tokens`. Throws UsageError if a sweep would
  /// have too many rows.
  std::optional<BeamRoom> room(const DecodeOptions& decode, int tokens) const;
  double penalty() const { return length_penalty.value_or(joint ? 0 : 1); }
};

}  // namespace canopy::cli
