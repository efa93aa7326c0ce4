#include "src/cli/options/speculation_options.h"

#include <algorithm>
#include <iostream>

#include "planner/shape_text.h"
#include "src/base/error.h"
#include "src/cli/options/profile.h"
#include "src/cli/options/sampling_flags.h"
#include "src/measure/kept.h"

namespace canopy::cli {

namespace po = boost::program_options;

SpeculationMethod parse_method(std::string_view flag, const std::string& text) {
  std::string known;
  for (const Method& method : kMethods) {
    if (text == method.name) return method.id;
    known += (known.empty() ? "" : ", ") + std::string(method.name);
  }
  throw UsageError(std::string(flag) + ": '" + text + "' is none of " + known);
}

namespace {

TreeShape parse_tree(const std::string& text) {
  try {
    const std::optional<TreeShape> written = parse_shape(text);
    TreeShape shape = written ? *written : shape_from_json(read_text(text, kMostSettingsBytes));
    require(shape.size() > 1, "the root alone speculates nothing: use --spec none");
    if (shape.size() > kMostTreeNodes)
      throw Error("a tree of " + std::to_string(shape.size()) + " nodes; the most is " +
                  std::to_string(kMostTreeNodes));
    return shape;
  } catch (const Error& e) {
    throw UsageError("--tree " + text + ": " + e.what());
  }
}

}  // namespace

po::options_description speculation_flags() {
  po::options_description flags("Speculation");
  flags.add_options()                                                                        //
      ("model-draft", po::value<std::string>()->value_name("PATH"), "-md: the draft model")  //
      ("spec", po::value<std::string>()->value_name("HOW")->default_value("auto"),           //
       "auto (what is predicted to be the fastest: a tree, a chain or none), none, sequoia, chain, "
       "specinfer, spectr, naive or topk: how children are drawn and verified; all are exact")  //
      ("tree", po::value<std::string>()->value_name("SHAPE"),
       "the tree's shape, instead of the one chosen: 5x8 (5 sequences of 8 tokens), 4,2,1 "
       "(children on each level), 2-ary:64 (64 nodes with 2 children each, level by level), or a "
       "JSON file with the parents: [-1, 0, 0, 1]")                                             //
      ("tree-size", po::value<int>()->value_name("N"), "nodes of the tree, its root included")  //
      ("tree-depth", po::value<int>()->value_name("LEVELS"),
       "most levels of the tree, the root's included")  //
      ("profile", po::value<std::string>()->value_name("FILE"),
       "plan with the figures that canopy calibrate hardware -o FILE measured (default: those kept "
       "for these models on this machine, measured once)");
  return flags;
}

void set_speculation(const po::variables_map& values, EngineOptions& options) {
  PlanRequest& plan = options.plan;
  const SpeculationMethod method = plan.method =
      parse_method("--spec", values["spec"].as<std::string>());
  const bool draft = values.count("model-draft") > 0;
  if (method != SpeculationMethod::kAuto && method != SpeculationMethod::kNone && !draft)
    throw UsageError("--spec " + std::string(name(method)) + ": needs a draft model, -md");
  const bool sized = values.count("tree-size") + values.count("tree-depth") > 0;
  if ((sized || values.count("tree")) && (method == SpeculationMethod::kNone || !draft))
    throw UsageError("--tree, --tree-size, --tree-depth: there is no tree without speculation");
  if (sized && values.count("tree"))
    throw UsageError("--tree: a shape has its size and depth; leave out --tree-size, --tree-depth");
  const TreeForm form = row_of(method).form;
  if (sized && form == TreeForm::kSequences)
    throw UsageError("--tree-size, --tree-depth: " + std::string(name(method)) +
                     " has no best tree; give --tree 5x8, say");
  if (values.count("tree") && form == TreeForm::kChain)
    throw UsageError("--tree: a chain has its shape; its length is --tree-size");
  if (values.count("tree-depth") && form == TreeForm::kChain)
    throw UsageError("--tree-depth: a chain is as deep as --tree-size says");
  // A tree that is asked for is grown, whatever is predicted of it.
  if (method == SpeculationMethod::kAuto && (sized || values.count("tree")))
    plan.method = SpeculationMethod::kSequoia;
  if (values.count("tree")) plan.shape = parse_tree(values["tree"].as<std::string>());
  for (const char* flag : {"tree-size", "tree-depth"})
    if (values.count(flag) && values[flag].as<int>() > kMostTreeNodes)
      throw UsageError("--" + std::string(flag) + ": must be at most " +
                       std::to_string(kMostTreeNodes));
  plan.tree_size = at_least(values, "tree-size", 2, 0);
  plan.tree_levels = at_least(values, "tree-depth", 2, 0);
  plan.temperature = static_cast<double>(sampling_of(values).temperature);
}

ModelFiles open_speculating_models(const po::variables_map& values, const EngineOptions& options) {
  const bool speculate =
      options.plan.method != SpeculationMethod::kNone && values.count("model-draft") > 0;
  ModelFiles models = open_models(values["model"].as<std::string>(),
                                  speculate ? values["model-draft"].as<std::string>() : "");
  if (!models.draft || !options.plan.shape) return models;
  const TreeShape& shape = *options.plan.shape;
  const int vocab = std::min(models.target.config().vocab, models.draft->config().vocab);
  for (NodeId node = 0; node < shape.size(); ++node)
    if (shape.child_count(node) > vocab)
      throw UsageError("--tree " + values["tree"].as<std::string>() + ": node " +
                       std::to_string(node) + " has " + std::to_string(shape.child_count(node)) +
                       " children, and the models have " + std::to_string(vocab) + " tokens");
  return models;
}

Assumptions find_assumptions(const po::variables_map& values, const ModelFiles& models,
                             EngineOptions& options, ProgressLine& progress,
                             const std::stop_token& stop) {
  Assumptions found{find_profile(values, models, options, progress, stop),
                    "there is no draft to accept"};
  if (!models.draft) return found;
  if (!found.profile.drafting)
    throw Error(values["profile"].as<std::string>() +
                ": measured without a draft model; measure again with -md");
  found.acceptance_from =
      "assumed to be a self-draft's; canopy calibrate acceptance would measure it";
  if (auto kept = find_acceptance(models, sampling_of(values))) {
    options.plan.acceptance = std::move(kept->acceptance);
    found.acceptance_from = "measured, " + kept->file.string();
  }
  return found;
}

}  // namespace canopy::cli
