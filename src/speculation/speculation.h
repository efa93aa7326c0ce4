#pragma once
// Room src/speculation: drafts and verdicts: what grows a tree of guesses, and which path of it is
// accepted so that the text is the target's own.
// In: a draft model or source, the target's logits. Out: trees, accepted paths, the next token.
// Must not know: streaming, memory budgets, requests.
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "planner/tree_shape.h"
#include "src/speculation/draft_source.h"
#include "src/speculation/growers/grower.h"
#include "src/speculation/method.h"
#include "src/speculation/rules/inexact_rule.h"

namespace canopy {

/// A wish of how texts are to be speculated: by the command line, a program, a bench.
/// Plain data.
struct Speculation {
  SpeculationMethod method = SpeculationMethod::kAuto;
  std::shared_ptr<const DraftSource> draft;  // in place of a model; see works_without_model()
  /// A hierarchy has this guess what the draft model would write, or else a second draft model.
  std::shared_ptr<const DraftSource> inner;
  std::optional<double> lenience;      // l of InexactRule: texts are not exact
  std::optional<InexactRule> typical;  // of heads: their tokens are kept by this rule
  // The numbers of single methods: see method_numbers().
  Growth growth;
  double fallback = 0.9, rollback = 2;
  double joint_threshold = 0.1;
  int joint_tokens = 4;
  std::optional<TreeShape> shape;  // the tree, if the planner is not to choose it
  int tree_size = 0;               // its nodes, where not 0
  int tree_levels = 0;             // its most levels
};

/// Drafts besides those that a Speculation holds. Heads are a DraftSource once their file is open.
struct DraftsGiven {
  bool model = false, inner_model = false, heads = false;
};

enum class SpeculationField : std::uint8_t {
  kMethod,
  kDraft,
  kInner,
  kLenience,
  kTypical,
  kShape,
  kTreeSize,
  kTreeLevels
};
const char* name(SpeculationField field);
/// A contradiction, and the field to change, or to use instead.
struct SpeculationFault {
  SpeculationField field = SpeculationField::kMethod;
  std::string what;
  std::optional<SpeculationField> instead = {};
  const char* number = nullptr;  // of method_numbers(), to use instead; null: none
};
/// Finds the first contradiction, if there is one.
std::optional<SpeculationFault> find_fault(const Speculation& asked, DraftsGiven given);

/// A number of some methods, under the name that flags give it. Sources: see Growth, InexactRule.
struct MethodNumber {
  const char* name;
  const char* symbol;  // of its value, in help
  const char* help;
  bool whole;
  double least, most;  // values that it may have
  std::span<const SpeculationMethod> methods;
  double (*get)(const Speculation&);
  void (*set)(Speculation&, double);

  bool is_of(SpeculationMethod method) const;
  std::string method_names() const;  // "gsd, tsd, ssd"
};
std::span<const MethodNumber> method_numbers();

}  // namespace canopy
