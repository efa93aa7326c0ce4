#pragma once
#include <optional>
#include <string>
#include <utility>

#include "src/cli/options/flags.h"
#include "src/engine/plan/plan.h"

namespace canopy::cli {

/// Longer texts than any model's, but their sums are numbers still.
inline constexpr int kMostTokens = 10'000'000;
/// The names of -n.
inline constexpr const char* kLengthFlag = "n-predict,max-tokens,max-new-tokens,n";

/// Checks a flag that counts tokens: at least `least`, at most kMostTokens.
FlagCheck<int> tokens_from(int least, std::string flag);

/// -n of a text that may also go on until the context is full: nothing for -1.
FlagValue<int> length_into(std::optional<int>& tokens, int by_default = 128);

/// --stop: the texts that end another; none of them is empty.
FlagValue<std::vector<std::string>> stops_into(std::vector<std::string>& stops);

/// The context where no flag gives one: what the request needs after plan.max_prompt, or all that
/// the model was made for, which may give way where memory is short. A text of `wanted` tokens is
/// priced as it will be, also where a flag gives room for more. Throws UsageError where there is no
/// room for a token.
void fit_context(std::optional<int> wanted, const ModelConfig& model, PlanRequest& plan);

}  // namespace canopy::cli
