#include "src/cli/options/bench_runs.h"

#include <algorithm>
#include <sstream>

#include "src/cli/options/speculation_options.h"

namespace canopy::cli {

namespace {

bool is_tree(SpeculationMethod method) {
  const TreeForm form = row_of(method).form;
  return form != TreeForm::kNone && form != TreeForm::kChain;
}

}  // namespace

std::vector<SpeculationMethod> parse_methods(const std::string& text, bool without_model,
                                             bool with_inner) {
  std::vector<SpeculationMethod> methods;
  if (text == "all") {
    for (const Method& method : kMethods)
      if (method.id != SpeculationMethod::kAuto && !drafts_with_itself(method.id) &&
          (with_inner || !takes_inner_draft(method.id)) &&
          (!without_model || works_without_model(method.id)))
        methods.push_back(method.id);
    return methods;
  }
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    methods.push_back(parse_method("--methods", word));
    if (takes_inner_draft(methods.back()) && !with_inner)
      throw UsageError("--methods: " + word +
                       " needs what guesses the draft's tokens, -mdd copy, say");
    if (without_model && !works_without_model(methods.back()) &&
        !drafts_with_itself(methods.back()))
      throw UsageError("--methods: " + word +
                       " draws from a draft model's probabilities, and -md "
                       "names no model");
  }
  if (methods.empty()) throw UsageError("--methods: names none");
  return methods;
}

PlanRequest request_for(const PlanRequest& common, SpeculationMethod method) {
  constexpr int kLength = 8;  // of a sequence, as SpecInfer's (arXiv:2402.12374, Sec. 4)
  PlanRequest request = common;
  request.method = method;
  if (!takes_lenience(method)) request.lenience.reset();
  if (!takes_inner_draft(method)) request.inner.reset();
  if (drafts_with_itself(method)) request.draft.reset();
  if (row_of(method).form == TreeForm::kGraph || row_of(method).inexact) {
    request.shape.reset();
    request.tree_levels = 0;
    if (method == SpeculationMethod::kMtad) request.tree_size = 0;
    return request;
  }
  if (!is_tree(method)) {
    request.shape.reset();
    request.tree_levels = 0;
    if (method == SpeculationMethod::kNone) request.tree_size = 0;
  } else if (row_of(method).form == TreeForm::kSequences && !request.shape &&
             request.tree_size > 0) {
    request.shape = TreeShape::sequences(std::max(1, (request.tree_size - 1) / kLength),
                                         std::min(kLength, request.tree_size - 1));
    request.tree_size = 0;
  }
  return request;
}

std::vector<std::pair<SpeculationMethod, int>> runs_of(
    const std::vector<SpeculationMethod>& methods, const std::vector<int>& sizes,
    const std::optional<TreeShape>& shape) {
  std::vector<std::pair<SpeculationMethod, int>> runs;
  for (const SpeculationMethod method : methods) {
    if (!is_tree(method)) runs.emplace_back(method, 0);
    if (method == SpeculationMethod::kNone || (row_of(method).inexact && !is_tree(method)))
      continue;  // their lengths are their own
    for (const int size : sizes) {
      const int nodes = !is_tree(method) && shape ? shape->size() : size;
      if (is_tree(method) || nodes > 0) runs.emplace_back(method, nodes);
    }
  }
  return runs;
}

}  // namespace canopy::cli
