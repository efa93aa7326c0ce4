#include "src/cli/output/plan_words.h"

#include "src/cli/output/table.h"

namespace canopy::cli {

std::string in_words(const TreeShape& shape) {
  const std::string nodes = std::to_string(shape.size());
  if (shape.size() == 1) return "plain decoding";
  if (shape.levels() == shape.size()) return "chain of " + nodes + " nodes";
  return "tree of " + nodes + " nodes in " + std::to_string(shape.levels()) + " levels";
}

std::string in_words(const Plan& plan) {
  const int places = plan.max_sequences;
  std::string words =
      places == 1 ? "1 text at a time" : std::to_string(places) + " texts share a sweep";
  words += "; " + std::string(name(plan.method));
  if (!plan.prediction) return words;
  const auto predicted = [](const Candidate& one) {
    return (one.valued ? "calibrated " : "") + in_words(one.shape) + ", " +
           fixed(one.per_token().count(), 3) + " s per token";
  };
  words += ", predicted for one: " + predicted(plan.prediction->best);
  if (places > 1)
    words += "; for " + std::to_string(places) + ": " + predicted(plan.prediction->full);
  return words;
}

}  // namespace canopy::cli
