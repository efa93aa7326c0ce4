#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/types.h"
#include "src/cli/options/flags.h"
#include "src/speculation/logits/logit_edits.h"

namespace canopy::cli {

/// Options of how tokens are drawn.
struct SamplingOptions {
  // Values that the user gave; empty where nobody gave any.
  std::optional<float> temperature, top_p, min_p, typical_p;
  std::optional<int> top_k;
  std::optional<float> repetition, presence, frequency;  // of commands that offer edit_flags()
  std::vector<std::pair<TokenId, float>> bias;           // of these, too
  std::optional<std::uint64_t> seed;

  /// Advice of a model's makers, for what the user leaves open.
  Sampling advised;
  LogitEditing advised_edits;

  Sampling sampling() const;
  LogitEditing edits() const;
  /// "temperature 0.7, top-p 0.9": what is not left as it is, for people.
  std::string in_words() const;

  /// --temp, --top-k, --top-p, --min-p, --typical, --seed.
  Flags flags();
  /// The penalties and --logit-bias.
  Flags edit_flags();
  /// Throws UsageError where --logit-bias names a token that is none.
  void check_tokens(int vocab) const;
};

}  // namespace canopy::cli
