#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/cli/options/flags.h"
#include "src/engine/plan/plan.h"
#include "src/measure/measurement_cache.h"

namespace canopy::cli {

/// The flags of commands that decode, besides the sampling's: -md, -mdd, --draft-corpus, --medusa,
/// --spec, --adaptive, --lenience, --tree, --tree-size, --tree-depth, --profile, --acceptance,
/// --no-learn, and the numbers of single methods.
struct SpeculationOptions {
  std::optional<std::string> draft;         // a path, or what drafts without a model
  std::optional<std::string> inner_draft;   // what guesses the draft's tokens
  std::optional<std::string> draft_corpus;  // a file
  std::optional<std::string> medusa;        // a file of heads, or its directory
  std::optional<SpeculationMethod> method;
  std::optional<std::string> tree;  // a shape, or a file of one
  std::optional<int> tree_size, tree_depth;
  bool adaptive = false;  // with chain: its length follows the draft's confidence
  std::optional<double> lenience;
  /// Numbers of single methods, as method_numbers() lists them.
  std::vector<std::optional<double>> numbers =
      std::vector<std::optional<double>>(method_numbers().size());
  // These belong to --medusa.
  bool typical_acceptance = false;
  std::optional<double> posterior_threshold, posterior_alpha;
  std::optional<std::string> profile;     // a file
  std::optional<std::string> acceptance;  // a file, too
  bool no_learn = false;
  bool every_method = false;  // many are measured: the numbers of any method may be given

  Flags flags();
  bool drafts() const { return draft || medusa; }
  /// The draft where it takes no model. Throws UsageError.
  std::shared_ptr<const DraftSource> without_model() const;
  Flags method_flags();  // those that belong to one method each
  /// Puts in what to speculate with, but for models and heads. Throws UsageError where the flags
  /// contradict each other.
  void put_into(Speculation& speculation) const;
  Learning learning() const { return no_learn ? Learning::kOff : Learning::kOn; }

 private:
  void put_typical(Speculation& speculation) const;
  void put_numbers(Speculation& speculation) const;
  void check(const Speculation& speculation) const;
  std::string flag_of(SpeculationField field, SpeculationMethod asked) const;
};

/// The acceptance in a file: one that canopy calibrate acceptance wrote, or a JSON list p(1), p(2),
/// ... Throws Error naming it.
Acceptance read_acceptance(const std::string& file);

/// Makes what -md or -mdd names, if it is a draft without a model. Throws UsageError.
std::shared_ptr<const DraftSource> draft_without_model(const std::string& draft,
                                                       const char* flag = "--model-draft");

/// Throws UsageError naming the flag.
SpeculationMethod parse_method(const std::string& flag, const std::string& text);

}  // namespace canopy::cli
