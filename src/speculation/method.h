#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/speculation/growers/grower.h"
#include "src/speculation/logits/drawing.h"
#include "src/speculation/rules/inexact_rule.h"

namespace canopy {

/// Method of speculation for a text.
enum class SpeculationMethod : std::uint8_t {
  kAuto,
  kNone,
  kSequoia,
  kChain,
  kAdaptive,
  kHierarchy,
  kSpecInfer,
  kSpecTr,
  kNaive,
  kTopK,
  kGsd,
  kTsd,
  kSsd,
  kSelfSsd,
  kGsdSequoia,
  kGsdRatio,
  kBild,
  kMtad,
  kCalibrated
};

/// The trees that a method can use, and the one that it gets where no shape is asked for.
enum class TreeForm : std::uint8_t {
  kNone,       // the root alone
  kChain,      // one token after another; its length is chosen
  kSequences,  // any tree; by default several independent sequences, since none is known to be best
  kGraph,      // what the draft's own rows make of a number of nodes
  kBest,       // any tree; by default the one of most expected tokens (arXiv:2402.12374, 3.1)
};

/// A row of the table of methods: the command line, the planner and the benches read it.
struct Method {
  SpeculationMethod id;
  const char* name;  // as a user writes it
  TreeForm form;
  Drawing drawing;                             // of siblings at a temperature above 0
  Growth::Kind growth = Growth::Kind::kShape;  // what ends a draft model's trees
  /// The rule where it is not exact: its texts are not quite the target's, and every report says
  /// so. The planner never chooses such a method.
  std::optional<InexactRule::Kind> inexact = {};
};

/// kAuto: of kSequoia, kChain, kNone and, at temperature 0, kCalibrated (on CPUs) what the planner
/// predicts to be the fastest.
inline constexpr std::array kMethods{
    Method{SpeculationMethod::kAuto, "auto", TreeForm::kBest, Drawing::kSequoia},
    Method{SpeculationMethod::kNone, "none", TreeForm::kNone, Drawing::kSequoia},
    Method{SpeculationMethod::kSequoia, "sequoia", TreeForm::kBest, Drawing::kSequoia},
    Method{SpeculationMethod::kCalibrated, "calibrated", TreeForm::kBest, Drawing::kSequoia,
           Growth::Kind::kValued},
    Method{SpeculationMethod::kChain, "chain", TreeForm::kChain, Drawing::kSequoia},
    Method{SpeculationMethod::kAdaptive, "adaptive", TreeForm::kChain, Drawing::kSequoia,
           Growth::Kind::kReach},
    Method{SpeculationMethod::kHierarchy, "hierarchy", TreeForm::kChain, Drawing::kSequoia,
           Growth::Kind::kHierarchy},
    Method{SpeculationMethod::kSpecInfer, "specinfer", TreeForm::kSequences, Drawing::kSpecInfer},
    Method{SpeculationMethod::kSpecTr, "spectr", TreeForm::kSequences, Drawing::kSpecTr},
    Method{SpeculationMethod::kNaive, "naive", TreeForm::kSequences, Drawing::kNaive},
    Method{SpeculationMethod::kTopK, "topk", TreeForm::kBest, Drawing::kTopK},
    Method{SpeculationMethod::kGsd, "gsd", TreeForm::kGraph, Drawing::kTopK, Growth::Kind::kGraph},
    Method{SpeculationMethod::kTsd, "tsd", TreeForm::kGraph, Drawing::kTopK, Growth::Kind::kGraph},
    Method{SpeculationMethod::kSsd, "ssd", TreeForm::kGraph, Drawing::kTopK, Growth::Kind::kGraph},
    Method{SpeculationMethod::kSelfSsd, "self-ssd", TreeForm::kGraph, Drawing::kTopK,
           Growth::Kind::kGraph},
    Method{SpeculationMethod::kGsdSequoia, "gsd-sequoia", TreeForm::kGraph, Drawing::kSequoia,
           Growth::Kind::kGraph},
    Method{SpeculationMethod::kGsdRatio, "gsd-ratio", TreeForm::kGraph, Drawing::kTopK,
           Growth::Kind::kGraph, InexactRule::Kind::kRatio},
    Method{SpeculationMethod::kBild, "bild", TreeForm::kChain, Drawing::kTopK,
           Growth::Kind::kConfidence, InexactRule::Kind::kRollback},
    Method{SpeculationMethod::kMtad, "mtad", TreeForm::kChain, Drawing::kTopK, Growth::Kind::kBeams,
           InexactRule::Kind::kJoint},
};

constexpr const Method& row_of(SpeculationMethod id) {
  for (const Method& method : kMethods)
    if (method.id == id) return method;
  return kMethods.front();
}
/// Nothing for a name that no method has.
constexpr std::optional<SpeculationMethod> method_named(std::string_view name) {
  for (const Method& method : kMethods)
    if (method.name == name) return method.id;
  return std::nullopt;
}
/// Their names, for a message.
inline std::string method_names() {
  std::string names;
  for (const Method& method : kMethods) names.append(names.empty() ? "" : ", ").append(method.name);
  return names;
}
/// Returns how siblings are drawn. At temperature 0 independent draws would all be the same token,
/// and draws without replacement arbitrary after the first: the draft's best tokens are every
/// method's children.
constexpr Drawing drawing_of(SpeculationMethod id, double temperature) {
  return temperature == 0 ? Drawing::kTopK : row_of(id).drawing;
}
/// True if its trees can come from a draft without a model, whose children are not drawn from
/// probabilities: the target's own sample decides then.
constexpr bool works_without_model(SpeculationMethod id) {
  if (row_of(id).growth != Growth::Kind::kShape) return false;
  return id == SpeculationMethod::kAuto || row_of(id).form == TreeForm::kNone ||
         row_of(id).form == TreeForm::kChain || row_of(id).drawing == Drawing::kTopK;
}
/// True if it can be verified leniently: by the rejection rule of one token, or of Sequoia's.
constexpr bool takes_lenience(SpeculationMethod id) {
  return row_of(id).drawing == Drawing::kSequoia && row_of(id).form != TreeForm::kNone &&
         row_of(id).form != TreeForm::kGraph && row_of(id).growth != Growth::Kind::kValued;
}
/// True if the target drafts with its own resident units: it has no other draft.
constexpr bool drafts_with_itself(SpeculationMethod id) {
  return id == SpeculationMethod::kSelfSsd;
}
/// True if a second draft guesses what the first one would write.
constexpr bool takes_inner_draft(SpeculationMethod id) {
  return row_of(id).growth == Growth::Kind::kHierarchy;
}
constexpr const char* name(SpeculationMethod id) { return row_of(id).name; }

}  // namespace canopy
