#include "src/measure/steps/fitted_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace canopy {
namespace {

constexpr double kText = 1024, kWindow = 256;  // tokens

/// Samples of a target with one layer that sees all and one with a window, and of a draft:
/// attention takes `once` and `per_row` seconds for each token that is seen.
MeasuredSamples timed(double once, double per_row, bool of_many = true) {
  MeasuredSamples samples;
  const auto add = [&](std::string_view name, double x, double t) {
    samples.add(name, {x, Seconds(t)});
  };
  for (const double rows : {1.0, 16.0}) {
    for (const std::size_t kind : {0U, 1U}) add(of_kind(kAttention, kind), rows, 1e-3 * rows);
    for (const char* name :
         {kMlp, kHead, kEmbed, name_of(Drawing::kTopK), name_of(Drawing::kSequoia)})
      add(name, rows, 2e-3 * rows);
  }
  add(kVerify, 1, 1e-4);
  for (int round = 0; round < 3; ++round)
    for (const double text : {0.0, kText})
      for (const bool many : {false, true}) {
        if (many && !of_many) continue;
        const double rows = many ? kRowsAfterText : 1;
        const auto of = [&](double seen) { return seen * (once + rows * per_row); };
        const char* const name = many ? canopy::kText : kTextOfOne;
        add(name, text, 5e-3 + of(text));
        add(of_kind(name, 1), text, 7e-3 + of(std::min(text, kWindow)));
        // A tree's root, then its rows.
        add(many ? kDraftText : kDraftTextOfOne, text, 3e-3 + of(text) + text * (once + per_row));
      }
  return samples;
}

HardwareProfile profile_of(const MeasuredSamples& samples) {
  std::vector<LayerConfig> kinds(2);
  kinds[1].window = static_cast<int>(kWindow);
  HardwareProfile profile;
  put_costs(samples, kinds, profile);
  return profile;
}

TEST(FittedCosts, TellWhatATextCostsOnceFromWhatEachRowAdds) {
  const HardwareProfile profile = profile_of(timed(3e-8, 1e-8));
  ASSERT_EQ(profile.layers.size(), 2U);
  for (const ContextCost& cost :
       {profile.layers[0].context, profile.layers[1].context, profile.drafting.value().context}) {
    EXPECT_NEAR(cost.once.count(), 3e-8, 1e-12);
    EXPECT_NEAR(cost.per_row.count(), 1e-8, 1e-12);
  }
}

TEST(FittedCosts, WithoutRoomForManyRowsEachIsTakenToCostWhatOneDoes) {
  const HardwareProfile profile = profile_of(timed(3e-8, 1e-8, false));
  for (const ContextCost& cost :
       {profile.layers[0].context, profile.layers[1].context, profile.drafting.value().context}) {
    EXPECT_EQ(cost.once, Seconds(0));
    EXPECT_NEAR(cost.per_row.count(), 4e-8, 1e-12);
  }
}

TEST(FittedCosts, WhatATextCostsWhereAllRestsIsApartAndMayBeMissing) {
  MeasuredSamples samples = timed(3e-8, 1e-8);
  EXPECT_FALSE(profile_of(samples).layers[0].context_at_rest.has_value());
  for (const double text : {0.0, kText}) {
    samples.add(kTextOfOneAtRest, {text, Seconds(1e-3 + text * 3e-9)});
    samples.add(kTextAtRest, {text, Seconds(1e-3 + text * 18e-9)});
  }
  const HardwareProfile profile = profile_of(samples);
  const ContextCost cost = profile.layers[0].context_at_rest.value();
  EXPECT_NEAR(cost.once.count(), 2e-9, 1e-14);
  EXPECT_NEAR(cost.per_row.count(), 1e-9, 1e-14);
  EXPECT_NEAR(profile.layers[0].context.once.count(), 3e-8, 1e-12);
  EXPECT_FALSE(profile.layers[1].context_at_rest.has_value());
}

TEST(FittedCosts, RowsThatTogetherTakeLessThanOneMakeNoNegativeCost) {
  MeasuredSamples samples = timed(3e-8, 0);
  for (int round = 0; round < 4; ++round) samples.add(canopy::kText, {kText, Seconds(5e-3)});
  const ContextCost cost = profile_of(samples).layers[0].context;
  EXPECT_NEAR(cost.once.count(), 3e-8, 1e-12);
  EXPECT_EQ(cost.per_row, Seconds(0));
}

/// Sweeps of single rows, then of more: a byte is read in 1 ns, and in `slowing` more for each that
/// the cores compute meanwhile.
MeasuredSamples reads_while_computing(double slowing) {
  MeasuredSamples samples = timed(3e-8, 1e-8);
  for (const double computing : {0.2e-9, 0.2e-9, 0.8e-9, 0.4e-9, 1.0e-9})
    samples.add(kLinkWhileComputing, {computing, Seconds(1e-9 + slowing * computing)});
  samples.add(kLink, {1e9, Seconds(1 + slowing * 0.2)});  // as the first
  return samples;
}

TEST(FittedCosts, TellTheLinkAloneFromWhatComputesNextToIt) {
  for (const double slowing : {0.0, 0.1, 0.35}) {
    const HardwareProfile profile = profile_of(reads_while_computing(slowing));
    EXPECT_NEAR(profile.link_slowing, slowing, 1e-9);
    EXPECT_NEAR(profile.link_bytes_per_second, 1e9, 1);
  }
}

TEST(FittedCosts, ADiskThatBecameFasterIsNotSlowedByCores) {
  const HardwareProfile profile = profile_of(reads_while_computing(-0.3));
  EXPECT_EQ(profile.link_slowing, 0);
  EXPECT_NEAR(profile.link_bytes_per_second, 1e9 / (1 - 0.3 * 0.2), 1);
}

TEST(FittedCosts, SingleRowsAloneSayNothingOfCoresThatCompute) {
  MeasuredSamples samples = timed(3e-8, 1e-8);
  for (int i = 0; i < 3; ++i) samples.add(kLinkWhileComputing, {0.2e-9, Seconds((1 + i) * 1e-9)});
  samples.add(kLink, {1e9, Seconds(1)});
  const HardwareProfile profile = profile_of(samples);
  EXPECT_EQ(profile.link_slowing, 0);
  EXPECT_EQ(profile.link_bytes_per_second, 1e9);
}

}  // namespace
}  // namespace canopy
