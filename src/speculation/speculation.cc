#include "src/speculation/speculation.h"

#include <algorithm>
#include <array>

namespace canopy {

namespace {

using Field = SpeculationField;
using Of = SpeculationMethod;

constexpr std::array kMerging{Of::kGsd, Of::kGsdSequoia, Of::kGsdRatio};
constexpr std::array kWide{Of::kGsd, Of::kGsdSequoia, Of::kTsd, Of::kGsdRatio};
constexpr std::array kGraphs{Of::kGsd, Of::kGsdSequoia, Of::kTsd,
                             Of::kSsd, Of::kSelfSsd,    Of::kGsdRatio};
constexpr std::array kBild{Of::kBild};
constexpr std::array kMtad{Of::kMtad};

constexpr double kMostNats = 1000;

constexpr std::array kNumbers{
    MethodNumber{"gsd-children", "K", "children of a node", true, 1, 32, kWide,
                 [](const Speculation& s) -> double { return s.growth.children; },
                 [](Speculation& s, double x) { s.growth.children = static_cast<int>(x); }},
    MethodNumber{"gsd-steps", "N", "levels that the draft runs", true, 1, 64, kGraphs,
                 [](const Speculation& s) -> double { return s.growth.steps; },
                 [](Speculation& s, double x) { s.growth.steps = static_cast<int>(x); }},
    MethodNumber{"gsd-prob", "P", "a token of a lower probability is not gone on from", false, 0, 1,
                 kGraphs, [](const Speculation& s) { return s.growth.least; },
                 [](Speculation& s, double x) { s.growth.least = x; }},
    MethodNumber{"gsd-sibling", "P", "nor one of less than P times its best sibling's", false, 0, 1,
                 kWide, [](const Speculation& s) { return s.growth.least_of_siblings; },
                 [](Speculation& s, double x) { s.growth.least_of_siblings = x; }},
    MethodNumber{"gsd-tau", "T",
                 "nodes whose last T tokens are the same are drafted once; with gsd-sequoia such "
                 "nodes of one level",
                 true, 1, 8, kMerging,
                 [](const Speculation& s) -> double { return s.growth.merge; },
                 [](Speculation& s, double x) { s.growth.merge = static_cast<int>(x); }},
    MethodNumber{"fallback", "F",
                 "the draft goes on while its likeliest token has this probability, --tree-size "
                 "nodes at most (11)",
                 false, 0, 1, kBild, [](const Speculation& s) { return s.fallback; },
                 [](Speculation& s, double x) { s.fallback = x; }},
    MethodNumber{"rollback", "B",
                 "keep drafted tokens up to the first of which the model's -ln p is above B", false,
                 0, kMostNats, kBild, [](const Speculation& s) { return s.rollback; },
                 [](Speculation& s, double x) { s.rollback = x; }},
    MethodNumber{"beams", "W", "beams of the draft", true, 1, 64, kMtad,
                 [](const Speculation& s) -> double { return s.growth.beams; },
                 [](Speculation& s, double x) { s.growth.beams = static_cast<int>(x); }},
    MethodNumber{"gamma", "G", "tokens of its chain", true, 1, 32, kMtad,
                 [](const Speculation& s) -> double { return s.joint_tokens; },
                 [](Speculation& s, double x) { s.joint_tokens = static_cast<int>(x); }},
    MethodNumber{"threshold", "TAU",
                 "keep the longest prefix of which min(1, p/q) jointly exceeds TAU", false, 0, 1,
                 kMtad, [](const Speculation& s) { return s.joint_threshold; },
                 [](Speculation& s, double x) { s.joint_threshold = x; }},
};

/// Finds what contradicts the draft.
std::optional<SpeculationFault> fault_of_draft(const Speculation& asked, DraftsGiven given) {
  const Of method = asked.method;
  const std::string named = name(method);
  const bool heads = given.heads || (asked.draft && asked.draft->has_heads());
  const bool replaced = given.heads || asked.draft, drafted = given.model || replaced;
  if (drafts_with_itself(method) && drafted)
    return SpeculationFault{Field::kDraft,
                            named + " drafts with the model itself: it takes no other draft"};
  if (method != Of::kAuto && method != Of::kNone && !drafted && !drafts_with_itself(method))
    return SpeculationFault{Field::kDraft, named + " needs a draft"};
  if (given.model && replaced)
    return SpeculationFault{Field::kDraft, "a tree is drafted by a model or by what replaces it"};
  if (replaced && !works_without_model(method))
    return SpeculationFault{Field::kMethod,
                            named + " draws from a draft model's probabilities, and " +
                                (heads ? "heads have" : asked.draft->name() + " has") +
                                " none; auto, chain and topk do without"};
  const bool has_inner = given.inner_model || asked.inner;
  if (takes_inner_draft(method) && !has_inner)
    return SpeculationFault{
        Field::kInner, named + " needs a second draft, which guesses what the first would write"};
  if ((has_inner && !takes_inner_draft(method)) || (given.inner_model && asked.inner))
    return SpeculationFault{Field::kInner, "one second draft is for a chain of a hierarchy"};
  if (asked.lenience && (!given.model || !takes_lenience(method)))
    return SpeculationFault{Field::kLenience,
                            "is of tokens that are drawn from a draft model and tried one by one: "
                            "for auto, sequoia, chain or adaptive"};
  if (asked.typical && (!heads || method == Of::kNone))
    return SpeculationFault{Field::kTypical, "is of what heads propose"};
  return std::nullopt;
}

std::optional<SpeculationFault> fault_of_tree(const Speculation& asked, DraftsGiven given) {
  const bool sized = asked.tree_size != 0 || asked.tree_levels != 0,
             shaped = asked.shape.has_value();
  if (!sized && !shaped) return std::nullopt;
  const Method& row = row_of(asked.method);
  const std::string named = row.name;
  const bool drafted = given.model || given.heads || asked.draft || drafts_with_itself(row.id);
  const Field field = shaped ? Field::kShape : Field::kTreeSize;
  if (row.form == TreeForm::kNone || !drafted)
    return SpeculationFault{field, "there is no tree without speculation"};
  if (sized && shaped)
    return SpeculationFault{Field::kShape, "a shape has its size and levels", Field::kTreeSize};
  if (sized && row.form == TreeForm::kSequences)
    return SpeculationFault{Field::kTreeSize, named + " has no best tree", Field::kShape};
  if (row.form == TreeForm::kChain && shaped)
    return SpeculationFault{Field::kShape, "a chain has its shape", Field::kTreeSize};
  if (row.form == TreeForm::kChain && asked.tree_levels != 0)
    return SpeculationFault{Field::kTreeLevels, "a chain is as deep as its size", Field::kTreeSize};
  if (row.growth == Growth::Kind::kValued && shaped)
    return SpeculationFault{Field::kShape, "the draft's rows make the trees of " + named,
                            Field::kTreeSize};
  if (row.form == TreeForm::kGraph && (shaped || asked.tree_levels != 0))
    return SpeculationFault{shaped ? Field::kShape : Field::kTreeLevels,
                            "the draft makes the trees of " + named, Field::kTreeSize, "gsd-steps"};
  if (row.id == Of::kMtad && sized)
    return SpeculationFault{
        Field::kTreeSize, "the length of mtad's chain is a number", {}, "gamma"};
  return std::nullopt;
}

}  // namespace

const char* name(SpeculationField field) {
  static constexpr std::array kNames{
      "method",       "draft",       "second draft", "lenience", "typical acceptance",
      "tree's shape", "tree's size", "tree's levels"};
  return kNames.at(static_cast<std::size_t>(field));
}

std::optional<SpeculationFault> find_fault(const Speculation& asked, DraftsGiven given) {
  if (auto fault = fault_of_draft(asked, given)) return fault;
  return fault_of_tree(asked, given);
}

bool MethodNumber::is_of(SpeculationMethod method) const {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}
std::string MethodNumber::method_names() const {
  std::string names;
  for (const SpeculationMethod method : methods)
    names.append(names.empty() ? "" : ", ").append(canopy::name(method));
  return names;
}
std::span<const MethodNumber> method_numbers() { return kNumbers; }

}  // namespace canopy
