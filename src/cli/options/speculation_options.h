#pragma once
#include <optional>
#include <string>

#include "src/cli/options/flags.h"
#include "src/engine/plan.h"

namespace canopy::cli {

/// The flags of commands that decode, beside the sampling's: -md, --spec, --tree, --tree-size,
/// --tree-depth, --profile.
struct SpeculationOptions {
  std::optional<std::string> draft;
  std::optional<SpeculationMethod> method;
  std::optional<std::string> tree;  // a shape, or a file of one
  std::optional<int> tree_size, tree_depth;
  std::optional<std::string> profile;  // a file

  Flags flags();
  /// What to speculate with, into `plan`. Throws UsageError where the flags contradict each other.
  void put_into(PlanRequest& plan) const;
};

/// Throws UsageError naming the flag.
SpeculationMethod parse_method(const std::string& flag, const std::string& text);

}  // namespace canopy::cli
