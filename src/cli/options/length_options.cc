#include "src/cli/options/length_options.h"

namespace canopy::cli {

namespace {

// Tokens of a text that may go on until the context is full, where memory is short.
constexpr int kLeastText = 128;

}  // namespace

FlagCheck<int> tokens_from(int least, std::string flag) {
  return [least, flag = std::move(flag)](const int& tokens) {
    at_least(flag, least)(tokens);
    if (tokens > kMostTokens)
      throw UsageError(flag + ": must be at most " + std::to_string(kMostTokens));
  };
}

FlagValue<int> length_into(std::optional<int>& tokens, int by_default) {
  return boost::program_options::value<int>()
      ->value_name("N")
      ->default_value(by_default)
      ->notifier([&tokens](int wanted) {
        if (wanted != -1 && (wanted < 1 || wanted > kMostTokens))
          throw UsageError("--n-predict: must be from 1 to " + std::to_string(kMostTokens) +
                           ", or -1 for as many as there are");
        tokens = wanted == -1 ? std::nullopt : std::optional(wanted);
      });
}

FlagValue<std::vector<std::string>> stops_into(std::vector<std::string>& stops) {
  return into_all(stops, "TEXT", [](const std::string& text) {
    if (text.empty()) throw UsageError("--stop: is empty, and every text would end at once");
  });
}

void fit_context(std::optional<int> wanted, const ModelConfig& model, PlanRequest& plan) {
  if (plan.context == 0 && !wanted && model.max_positions <= 0)
    throw UsageError("--n-predict -1: this model does not say how long a text may be: give -c N");
  if (plan.context == 0 && !wanted) plan.least_context = plan.max_prompt + kLeastText;
  if (plan.context == 0)
    plan.context = wanted ? plan.max_prompt + *wanted : model.max_positions;
  else if (wanted && plan.priced_text == 0)  // this text may end long before the context does
    plan.priced_text = plan.max_prompt + std::min(*wanted, plan.context - plan.max_prompt) / 2;
  plan.least_context = std::min(plan.least_context, plan.context);
  if (plan.context <= plan.max_prompt)
    throw UsageError("--ctx-size: the prompt alone has " + std::to_string(plan.max_prompt) +
                     " tokens, and the context " + std::to_string(plan.context) +
                     "; leave room for at least one more");
}

}  // namespace canopy::cli
