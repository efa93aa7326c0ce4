#include "planner/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "src/base/error.h"
#include "tests/planner/made_up.h"

namespace canopy {
namespace {

using testing::made_up_profile;
using testing::made_up_weights;

double period(const std::vector<std::uint64_t>& bytes, const std::vector<Seconds>& compute,
              double between, std::uint64_t ring, double bandwidth) {
  return ring_period(bytes, compute, Seconds(between), ring, bandwidth).count();
}

TEST(RingPeriod, ADeepRingHidesEverythingBehindTheSlowestResource) {
  const std::vector<std::uint64_t> bytes(10, 100);
  const std::vector<Seconds> quick(10, Seconds(0.1)), slow(10, Seconds(2));
  EXPECT_NEAR(period(bytes, quick, 5, 10'000, 100), 10, 1e-9);  // 1,000 bytes at 100 a second
  EXPECT_NEAR(period(bytes, slow, 5, 10'000, 100), 25, 1e-9);   // 10 units of 2, and 5 between
}

TEST(RingPeriod, AShallowRingFillsWhileTheTreeGrowsAndTheRestComesAfterwards) {
  // docs/math.md, "A byte at rest or a byte in the ring": T + (S - min(R, b T)) / b.
  const std::vector<std::uint64_t> bytes(10, 100);
  const std::vector<Seconds> nothing(10, Seconds(0));
  EXPECT_NEAR(period(bytes, nothing, 8, 300, 100), 8 + (1000 - 300) / 100.0, 1e-9);
  EXPECT_NEAR(period(bytes, nothing, 2, 300, 100), 2 + (1000 - 200) / 100.0, 1e-9);
}

TEST(RingPeriod, TwoUnitsOfRoomOverlapReadingAndArithmetic) {
  const std::vector<std::uint64_t> bytes(10, 100);
  const std::vector<Seconds> compute(10, Seconds(0.5));
  EXPECT_NEAR(period(bytes, compute, 0, 200, 100), 10, 1e-9);
  EXPECT_NEAR(period(bytes, compute, 0, 100, 100), 15, 1e-9);  // one unit of room: in turn
}

TEST(RingPeriod, UnitsAtRestAreComputedWhileOthersArrive) {
  std::vector<std::uint64_t> bytes(10, 0);
  const std::vector<Seconds> compute(10, Seconds(1));
  EXPECT_NEAR(period(bytes, compute, 1, 0, 1), 11, 1e-9);
  bytes[4] = 100;
  EXPECT_NEAR(period(bytes, compute, 1, 100, 100), 11, 1e-9);
}

TEST(RingPeriod, ARingBelowItsLargestUnitIsAnError) {
  EXPECT_THROW(period({100, 300}, {Seconds(0), Seconds(0)}, 0, 200, 1), Error);
}

TEST(RingPeriod, MoreBandwidthOrMoreRoomNeverCostsTime) {
  std::mt19937 random(3);
  const auto upto = [&](int n) { return std::uniform_int_distribution<int>(0, n)(random); };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint64_t> bytes;
    std::vector<Seconds> compute;
    std::uint64_t largest = 0;
    for (int i = 0; i < 2 + upto(20); ++i) {
      bytes.push_back(static_cast<std::uint64_t>(upto(3) * upto(100)));
      compute.push_back(Seconds(0.01 * upto(100)));
      largest = std::max(largest, bytes.back());
    }
    const double between = 0.1 * upto(50), bandwidth = 20 + upto(200);
    const std::uint64_t ring = largest + static_cast<std::uint64_t>(upto(500));
    const double now = period(bytes, compute, between, ring, bandwidth);
    EXPECT_LE(period(bytes, compute, between, ring, 2 * bandwidth), now + 1e-9) << round;
    EXPECT_LE(period(bytes, compute, between, 2 * ring + 1, bandwidth), now + 1e-9) << round;
  }
}

TEST(CostModel, DraftingCountsTheLevelsThatAreRunAndNoLeaves) {
  const CostModel model(made_up_profile());
  const WeightPlan weights = made_up_weights(1000);
  const auto draft = [&](const TreeShape& shape) {
    return model.step({.shape = &shape}, weights).draft.count();
  };
  const Curve& level = model.profile().drafting->level_sampled;
  EXPECT_DOUBLE_EQ(draft(TreeShape()), 0);
  EXPECT_NEAR(draft(TreeShape::chain(5)), 4 * level.at(1).count(), 1e-12);
  // 3 sequences of 4: the root, then 3 rows for each level but the last.
  EXPECT_NEAR(draft(TreeShape::sequences(3, 4)), level.at(1).count() + 3 * level.at(3).count(),
              1e-12);
}

TEST(CostModel, SequencesShareTheSweepButNotTheArithmetic) {
  const CostModel model(made_up_profile());
  const WeightPlan weights = made_up_weights(1'000'000'000);
  const TreeShape shape = TreeShape::chain(4);
  const StepCost one = model.step({.shape = &shape}, weights);
  const StepCost four = model.step({.shape = &shape, .sequences = 4}, weights);
  EXPECT_EQ(one.link, four.link);
  EXPECT_GT(four.compute, one.compute);
}

TEST(CostModel, ALongerTextCostsAttention) {
  const CostModel model(made_up_profile());
  const WeightPlan weights = made_up_weights(1000);
  const TreeShape shape = TreeShape::chain(4);
  const StepCost near = model.step({.shape = &shape, .context = 10}, weights);
  const StepCost far = model.step({.shape = &shape, .context = 1010}, weights);
  const auto& profile = model.profile();
  const ContextCost &layer = profile.layers[0].context, &draft = profile.drafting->context;
  EXPECT_NEAR((far.compute - near.compute).count(),
              testing::kLayers * 1000 * (layer.once + 4 * layer.per_row).count(), 1e-9);
  EXPECT_NEAR((far.draft - near.draft).count(), 3 * 1000 * (draft.once + draft.per_row).count(),
              1e-9);
}

TEST(CostModel, RowsOfATextReadItTogetherAndTextsReadTheirOwn) {
  const CostModel model(made_up_profile());
  const WeightPlan weights = made_up_weights(1000);
  const auto text = [&](const TreeShape& shape, int sequences) {
    const auto compute = [&](double context) {
      return model.step({.shape = &shape, .sequences = sequences, .context = context}, weights)
          .compute;
    };
    return (compute(1000) - compute(0)).count() / testing::kLayers / 1000;
  };
  const ContextCost& cost = model.profile().layers[0].context;
  const TreeShape one, four = TreeShape::chain(4);
  EXPECT_NEAR(text(one, 1), (cost.once + cost.per_row).count(), 1e-12);
  EXPECT_NEAR(text(four, 1), (cost.once + 4 * cost.per_row).count(), 1e-12);
  EXPECT_NEAR(text(one, 4), 4 * (cost.once + cost.per_row).count(), 1e-12);
}

TEST(CostModel, ALayerWithAWindowCostsNoMoreThanItsWindow) {
  const CostModel model(made_up_profile());
  WeightPlan weights = made_up_weights(1000);
  ASSERT_EQ(weights.units[2].kind, UnitKind::kAttention);
  weights.units[2].window = 200;
  const TreeShape shape = TreeShape::chain(4);
  const auto compute = [&](double context) {
    return model.step({.shape = &shape, .context = context}, weights).compute.count();
  };
  const double of_token = model.profile().layers[0].context.at(4, 1).count();
  EXPECT_NEAR(compute(200) - compute(100), testing::kLayers * 100 * of_token, 1e-12);
  EXPECT_NEAR(compute(1200) - compute(200), (testing::kLayers - 1) * 1000 * of_token, 1e-12);
}

TEST(CostModel, RanksShareProductsAndGatherTheirColumns) {
  WeightPlan weights = made_up_weights(1000);
  for (SweepUnit& unit : weights.units) unit.gathered = 1000;
  const TreeShape shape = TreeShape::chain(4);
  const StepQuery query{.shape = &shape, .context = 100};
  const StepCost alone = CostModel(made_up_profile()).step(query, weights);
  EXPECT_EQ(alone.exchange, Seconds(0));
  const Network network{3, 0.5, Seconds(1e-4), 1e6};
  const CostModel model(made_up_profile(), network);
  const StepCost shared = model.step(query, weights);
  // docs/math.md (T7): 2 rounds for 3 ranks; 4 rows of 41 units.
  const double latency = (4 * testing::kLayers + 1) * 2 * 1e-4;
  const double bytes = 4 * (2 * testing::kLayers + 1) * 1000 * 4 * 2.0 / 3 / 1e6;
  EXPECT_NEAR(shared.exchange.count(), latency + bytes, 1e-9);
  // Half of all but the embedding and attention to the text.
  const auto& profile = model.profile();
  const double whole = profile.embed.at(4).count() +
                       testing::kLayers * 100 * profile.layers[0].context.at(4, 1).count();
  EXPECT_NEAR(shared.compute.count(), whole + (alone.compute.count() - whole) / 2, 1e-9);
  EXPECT_NEAR(shared.step.count(),
              (shared.compute + shared.exchange + shared.draft + shared.verify).count(), 1e-5);
  EXPECT_EQ(shared.bottleneck, Bottleneck::kNetwork);
  const Network uneven{3, 0.5, Seconds(1e-4), 1e6, 1.25};  // another has a quarter more to read
  EXPECT_NEAR(CostModel(made_up_profile(), uneven).bandwidth(weights),
              model.bandwidth(weights) / 1.25, 1e-3);
}

TEST(CostModel, ASlowerNetworkLeavesFewerRowsBehindTheLink) {
  WeightPlan weights = made_up_weights(1'000'000'000);
  for (SweepUnit& unit : weights.units) unit.gathered = 10'000;
  int before = 0;
  for (const double speed : {1e8, 1e9, 1e10}) {
    const CostModel model(made_up_profile(), {2, 0.5, Seconds(1e-5), speed});
    const auto rows = model.rows_behind_link(weights, 0);
    ASSERT_TRUE(rows);
    EXPECT_GT(*rows, before);
    before = *rows;
  }
}

TEST(CostModel, EachUnitCostsWhatItsKindOfLayerDoes) {
  HardwareProfile profile = made_up_profile();
  const HardwareProfile::LayerCosts first = profile.layers.front();
  const HardwareProfile::LayerCosts slow{
      testing::line(4e-3, 1e-4), {}, {Seconds(5e-8), Seconds(5e-8)}};  // no MLP
  profile.layers.push_back(slow);
  const CostModel model(profile);
  const TreeShape shape = TreeShape::chain(4);
  WeightPlan weights = made_up_weights(0);
  const StepQuery query{.shape = &shape, .context = 300};
  const StepCost alike = model.step(query, weights);
  ASSERT_EQ(weights.units[2].kind, UnitKind::kAttention);
  weights.units[2].layer_kind = 1;
  const StepCost other = model.step(query, weights);
  EXPECT_NEAR((other.compute - alike.compute).count(),
              (slow.attention.at(4) - first.attention.at(4)).count() +
                  300 * (slow.context.at(4, 1) - first.context.at(4, 1)).count(),
              1e-12);
  EXPECT_NEAR((other.step - alike.step).count(), (other.compute - alike.compute).count(), 1e-12);
  weights.units[3].layer_kind = 1;
  EXPECT_THROW(model.step(query, weights), Error) << "that kind has no MLP";
  weights.units[3].layer_kind = 2;
  EXPECT_THROW(model.step(query, weights), Error) << "there is no such kind";
}

TEST(CostModel, ATreeNeedsAProfileWithADraft) {
  HardwareProfile profile = made_up_profile();
  profile.drafting.reset();
  const CostModel model(profile);
  const TreeShape shape = TreeShape::chain(2);
  EXPECT_THROW(model.step({.shape = &shape}, made_up_weights(1)), Error);
}

TEST(CostModel, KnowsHowManyRowsHideBehindTheLink) {
  const CostModel model(made_up_profile());
  const WeightPlan weights = made_up_weights(1u << 30);
  for (const double context : {0.0, 500.0, 4000.0}) {
    const int rows = model.rows_behind_link(weights, context).value();
    const auto compute_of = [&](int nodes) {
      const TreeShape shape = TreeShape::chain(nodes);
      return model.step({.shape = &shape, .context = context}, weights);
    };
    EXPECT_LE(compute_of(rows).compute, compute_of(rows).link) << rows;
    EXPECT_GT(compute_of(rows + 1).compute, compute_of(rows + 1).link);
  }
  WeightPlan resting = weights;
  for (SweepUnit& unit : resting.units) unit.bytes = 0;
  EXPECT_FALSE(model.rows_behind_link(resting, 0));
}

TEST(CostModel, CoresThatComputeSlowTheLinkForAsLongAsBothGoOn) {
  HardwareProfile profile = made_up_profile();
  const TreeShape root, few = TreeShape::sequences(2, 4), many = TreeShape::sequences(100, 4);
  WeightPlan weights = made_up_weights(1'000'000'000);
  weights.ring_bytes = 2'000'000'000;
  const auto step = [&](const TreeShape& shape, double slowing) {
    profile.link_slowing = slowing;
    return CostModel(profile).step({.shape = &shape, .sampled = false}, weights);
  };
  for (const TreeShape* const shape : {&root, &few, &many}) {
    const StepCost alone = step(*shape, 0), beside = step(*shape, 0.25);
    const Seconds cores = alone.compute + alone.draft + alone.verify;
    const Seconds slowed = std::min(alone.link + 0.25 * cores, alone.link / 0.75);
    EXPECT_NEAR(beside.link.count(), slowed.count(), 1e-9);
    EXPECT_NEAR(beside.step.count(), std::max(slowed, cores).count(), 1e-9);
    EXPECT_EQ(beside.compute, alone.compute);
  }
  EXPECT_GT(step(many, 0).compute, step(many, 0).link / 0.75) << "the cores set the pace";
  profile.link_slowing = 0;
  const int rows = CostModel(profile).rows_behind_link(weights, 0).value();
  profile.link_slowing = 0.25;
  EXPECT_GT(CostModel(profile).rows_behind_link(weights, 0).value(), rows);
}

TEST(CostModel, RowsOfAPromptCostAllButTheHead) {
  const CostModel model(made_up_profile());
  const WeightPlan weights = made_up_weights(0);
  const TreeShape root;
  StepQuery query;
  query.shape = &root;
  const Seconds alone = model.step(query, weights).compute;
  query.prompt_rows = 10;
  // 20 layers of .2 ms for each row, and the embedding's 1e-6.
  EXPECT_NEAR((model.step(query, weights).compute - alone).count(), 10 * (20 * 2e-4 + 1e-6), 1e-9);
}

TEST(CostModel, WhatRestsIsComputedWithoutReadsInTheWay) {
  HardwareProfile profile = made_up_profile();
  const TreeShape shape = TreeShape::sequences(2, 2), root;
  const StepQuery tree{.shape = &shape}, plain{.shape = &root};
  WeightPlan weights = made_up_weights(0);
  weights.table_rests = true;
  const CostModel before(profile);
  const Seconds one = before.step(plain, weights).compute,
                five = before.step(tree, weights).compute;
  // Half the time of a row, three quarters of that of four and of more.
  const TreeShape chain = TreeShape::chain(4);
  const Seconds four = before.step({.shape = &chain}, weights).compute;
  profile.at_rest = Curve::fit(std::vector<Sample>{{1, 0.5 * one}, {4, 0.75 * four}});
  const CostModel model(profile);
  EXPECT_NEAR(model.step(plain, weights).compute.count(), 0.5 * one.count(), 1e-12);
  EXPECT_NEAR(model.step(tree, weights).compute.count(), 0.75 * five.count(), 1e-12);
  EXPECT_EQ(model.step(tree, weights).draft, before.step(tree, weights).draft);
  EXPECT_EQ(model.step(tree, weights).verify, before.step(tree, weights).verify);
  const WeightPlan travelling = made_up_weights(1'000'000'000);
  EXPECT_EQ(model.step(tree, travelling).compute, before.step(tree, travelling).compute);
  weights.experts = {20, 8, 2, 1000, 159};
  EXPECT_EQ(model.step(tree, weights).compute, five) << "an expert may have to come";
  weights.experts.stay = 160;
  EXPECT_NEAR(model.step(tree, weights).compute.count(), 0.75 * five.count(), 1e-12);
}

TEST(CostModel, ATextIsReadFasterWhereNothingElseIs) {
  HardwareProfile profile = made_up_profile();
  const TreeShape shape = TreeShape::chain(4);
  const WeightPlan resting = made_up_weights(0), travelling = made_up_weights(1000);
  const auto text = [&](const WeightPlan& weights) {
    const CostModel model(profile);
    return (model.step({.shape = &shape, .context = 1000}, weights).compute -
            model.step({.shape = &shape}, weights).compute)
               .count() /
           testing::kLayers / 1000;
  };
  const double measured_while_reading = profile.layers[0].context.at(4, 1).count();
  EXPECT_NEAR(text(resting), measured_while_reading, 1e-12) << "nothing else is known";
  profile.layers[0].context_at_rest = {Seconds(1e-8), Seconds(2e-9)};
  EXPECT_NEAR(text(resting), 1e-8 + 4 * 2e-9, 1e-12);
  EXPECT_NEAR(text(travelling), measured_while_reading, 1e-12);
}

TEST(CostModel, RowsOfATableThatRestsTakeNoTime) {
  HardwareProfile profile = made_up_profile();
  const TreeShape root;
  const StepQuery query{.shape = &root};
  WeightPlan weights = made_up_weights(0);
  const Seconds read = CostModel(profile).step(query, weights).step;
  const Seconds fetched = profile.embed.at(1);
  ASSERT_GT(fetched.count(), 0);
  weights.table_rests = true;
  EXPECT_NEAR((read - CostModel(profile).step(query, weights).step).count(), fetched.count(),
              1e-12);
}

}  // namespace
}  // namespace canopy
