#pragma once
#include <optional>
#include <string>
#include <utility>

#include "src/cli/options/flags.h"
#include "src/engine/plan.h"

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

/// The context where no flag gives one: what the request needs behind plan.max_prompt, or all that
/// the model was made for. Throws UsageError where there is no room for a token.
void fit_context(std::optional<int> wanted, const ModelConfig& model, PlanRequest& plan);

/// Runs `body`, which plans for that context. Where nobody chose it, a budget that is too small for
/// it is told with how to choose another.
template <class Body>
decltype(auto) advise_on_context(std::optional<int> wanted, std::optional<int> chosen,
                                 const PlanRequest& plan, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const BudgetError& e) {
    if (wanted || chosen) throw;
    throw e.with("making room for a text of " + std::to_string(plan.context) +
                 " tokens, the longest that the model was made for: -c N takes less memory, and so "
                 "does -n N");
  }
}

}  // namespace canopy::cli
