// Requests that speculation takes, and the list of numbers that flags are made from.
#include "src/speculation/speculation.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "tests/speculation/toy_draft.h"

namespace canopy::testing {
namespace {

using Field = SpeculationField;
using Of = SpeculationMethod;

Speculation by(Of method) {
  Speculation asked;
  asked.method = method;
  return asked;
}
/// The field that is at fault; nothing where all is well.
std::optional<Field> at_fault(const Speculation& asked, DraftsGiven given) {
  const auto fault = find_fault(asked, given);
  if (!fault) return std::nullopt;
  EXPECT_FALSE(fault->what.empty());
  return fault->field;
}
constexpr DraftsGiven kNothing{}, kModel{.model = true}, kHeads{.heads = true},
    kTwo{.model = true, .inner_model = true};

TEST(Speculation, EachMethodIsAskedForWithItsOwnKindOfDraft) {
  for (const Method& row : kMethods) {
    const bool needs = row.id != Of::kAuto && row.id != Of::kNone && !drafts_with_itself(row.id);
    EXPECT_EQ(at_fault(by(row.id), kNothing), needs ? std::optional(Field::kDraft) : std::nullopt)
        << row.name;
    const auto with_model = drafts_with_itself(row.id)  ? std::optional(Field::kDraft)
                            : takes_inner_draft(row.id) ? std::optional(Field::kInner)
                                                        : std::nullopt;
    EXPECT_EQ(at_fault(by(row.id), kModel), with_model) << row.name;
    Speculation without_model = by(row.id);
    without_model.draft = std::make_shared<LooksBackSource>();
    const auto replaced = drafts_with_itself(row.id)     ? std::optional(Field::kDraft)
                          : !works_without_model(row.id) ? std::optional(Field::kMethod)
                                                         : std::nullopt;
    EXPECT_EQ(at_fault(without_model, kNothing), replaced) << row.name;
    EXPECT_EQ(at_fault(by(row.id), kHeads), replaced) << row.name;
    if (!drafts_with_itself(row.id)) {
      EXPECT_EQ(at_fault(without_model, kModel), Field::kDraft) << row.name;
      EXPECT_EQ(at_fault(by(row.id), kTwo),
                takes_inner_draft(row.id) ? std::nullopt : std::optional(Field::kInner))
          << row.name;
    }
  }
}

TEST(Speculation, RulesThatAreNotExactAreForWhatTheyAreDefinedFor) {
  for (const Method& row : kMethods) {
    Speculation lenient = by(row.id);
    lenient.lenience = 0.5;
    if (at_fault(by(row.id), kModel)) continue;
    EXPECT_EQ(at_fault(lenient, kModel),
              takes_lenience(row.id) ? std::nullopt : std::optional(Field::kLenience))
        << row.name;
  }
  Speculation typical = by(Of::kTopK);
  typical.typical = InexactRule{InexactRule::Kind::kTypical, 0.1, 0.3};
  EXPECT_EQ(at_fault(typical, kHeads), std::nullopt);
  EXPECT_EQ(at_fault(typical, kModel), Field::kTypical);
}

TEST(Speculation, ATreeIsAskedForByItsShapeOrItsSizeAsTheMethodHasIt) {
  const auto shaped = [](Of method) {
    Speculation asked = by(method);
    asked.shape = TreeShape::sequences(2, 3);
    return asked;
  };
  const auto sized = [](Of method, int nodes, int levels) {
    Speculation asked = by(method);
    asked.tree_size = nodes;
    asked.tree_levels = levels;
    return asked;
  };
  EXPECT_EQ(at_fault(shaped(Of::kSequoia), kModel), std::nullopt);
  EXPECT_EQ(at_fault(shaped(Of::kNone), kModel), Field::kShape);
  EXPECT_EQ(at_fault(shaped(Of::kAuto), kNothing), Field::kShape);
  EXPECT_EQ(at_fault(shaped(Of::kChain), kModel), Field::kShape);
  EXPECT_EQ(at_fault(shaped(Of::kGsd), kModel), Field::kShape);
  EXPECT_EQ(at_fault(shaped(Of::kCalibrated), kModel), Field::kShape);
  EXPECT_EQ(at_fault(sized(Of::kCalibrated, 9, 3), kModel), std::nullopt);
  EXPECT_EQ(at_fault(sized(Of::kSequoia, 9, 3), kModel), std::nullopt);
  EXPECT_EQ(at_fault(sized(Of::kChain, 9, 0), kModel), std::nullopt);
  EXPECT_EQ(at_fault(sized(Of::kChain, 0, 9), kModel), Field::kTreeLevels);
  EXPECT_EQ(at_fault(sized(Of::kSpecInfer, 9, 0), kModel), Field::kTreeSize);
  EXPECT_EQ(at_fault(sized(Of::kGsd, 9, 0), kModel), std::nullopt);
  EXPECT_EQ(at_fault(sized(Of::kGsd, 0, 4), kModel), Field::kTreeLevels);
  EXPECT_EQ(at_fault(sized(Of::kMtad, 9, 0), kModel), Field::kTreeSize);
  Speculation both = shaped(Of::kSequoia);
  both.tree_size = 6;
  const auto fault = find_fault(both, kModel);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->instead, Field::kTreeSize);
}

TEST(MethodNumbers, AreSetEachAloneAndHaveTheirDefaultWithinTheirBounds) {
  std::set<std::string> names;
  for (const MethodNumber& number : method_numbers()) {
    SCOPED_TRACE(number.name);
    EXPECT_TRUE(names.insert(number.name).second);
    const double usual = number.get(Speculation());
    EXPECT_GE(usual, number.least);
    EXPECT_LE(usual, number.most);
    Speculation changed;
    const double other = usual == number.most ? number.least : number.most;
    number.set(changed, other);
    for (const MethodNumber& one : method_numbers())
      EXPECT_EQ(one.get(changed), one.name == number.name ? other : one.get(Speculation()))
          << one.name;
    EXPECT_FALSE(number.is_of(Of::kSequoia));
  }
  EXPECT_EQ(names.size(), 10U);
}

}  // namespace
}  // namespace canopy::testing
