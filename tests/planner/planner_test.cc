#include "planner/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "planner/acceptance.h"
#include "tests/planner/made_up.h"

namespace canopy {
namespace {

using testing::made_up_profile;

constexpr std::uint64_t kGiB = 1u << 30;

struct World {
  CostModel cost{made_up_profile()};
  std::uint64_t memory = kGiB, model = 8 * kGiB;
  PlannerInput input() const {
    PlannerInput in;
    in.cost = &cost;
    in.acceptance = default_acceptance(0.6);
    in.context = 200;
    in.lay_out = [this](const TreeRoom& room, int, std::uint64_t ring) {
      return testing::lay_out_in(memory, model, room, ring);
    };
    return in;
  }
};

double seconds(const Choice& choice) { return choice.best.per_token().count(); }

TEST(Planner, ADraftThatIsNeverRightIsNotAsked) {
  const World world;
  PlannerInput in = world.input();
  in.acceptance = {{0.00002, 0.00002, 0.00002, 0.00002}};
  EXPECT_EQ(choose(in)->best.shape.size(), 1);
}

TEST(Planner, AFullHouseOfAGivenShapeReadsTheWeightsThatGaveWay) {
  const World world;
  const std::uint64_t unit = testing::made_up_weights(world.model).units.front().bytes;
  PlannerInput in = world.input();
  in.full_context = 20 * in.context;
  in.lay_out = [&](const TreeRoom& room, int, std::uint64_t ring) {
    auto weights = testing::lay_out_in(world.memory, world.model, room, ring);
    for (SweepUnit& rests : weights.value().units) {
      if (rests.bytes > 0) continue;
      rests.gives_way = true;
      rests.own_bytes = unit;
    }
    return weights;
  };
  const TreeShape root;
  const Candidate one = predict(in, root, 1, 1).value(), full = predict_full(in, root, 1).value();
  EXPECT_EQ(full.sweep_bytes, (2 * testing::kLayers + 1) * unit);
  EXPECT_LT(one.sweep_bytes, full.sweep_bytes);
  EXPECT_GT(full.cost.link, one.cost.link);
  EXPECT_GT(full.cost.compute, one.cost.compute) << "of a longer text";
}

TEST(Planner, ALargeTreeWhereTheLinkIsTheLimit) {
  const World world;
  const Candidate best = choose(world.input())->best;
  EXPECT_GE(best.shape.size(), 64);
  EXPECT_GT(best.shape.level_widths()[1], 1);
}

TEST(Planner, AChainWhereComputeIsTheLimit) {
  World world;
  world.memory = 16 * kGiB;  // everything rests
  HardwareProfile profile = made_up_profile();
  profile.layers[0].attention = testing::line(0, 1e-2);  // twice the rows, twice the time
  profile.layers[0].mlp = testing::line(1e-2, 1e-2);
  profile.head = testing::line(0, 1e-2);
  world.cost = CostModel(profile);
  const Candidate best = choose(world.input())->best;
  EXPECT_EQ(best.sweep_bytes, 0u);
  EXPECT_GT(best.shape.size(), 1);
  EXPECT_EQ(best.shape.levels(), best.shape.size());
}

TEST(Planner, IsNoWorseThanEverySizeAndDepthTriedByHand) {
  for (const std::uint64_t memory : {kGiB, 2 * kGiB, 7 * kGiB, 16 * kGiB}) {
    World world;
    world.memory = memory;
    const PlannerInput in = world.input();
    double best = 1e9;
    for (int nodes = 2; nodes <= 400; nodes += std::max(1, nodes / 16))
      for (int levels = 2; levels <= std::min(nodes, 26); ++levels) {
        PlannerInput one = in;
        one.plain = one.chains = false;
        one.nodes = nodes;
        one.max_levels = levels;
        if (const auto choice = choose(one)) best = std::min(best, seconds(*choice));
      }
    EXPECT_LT(seconds(*choose(in)), 1.02 * best) << memory;
  }
}

TEST(Planner, MoreMemoryAFasterLinkOrABetterDraftNeverCostsTime) {
  double before = 1e9;
  for (std::uint64_t memory = kGiB; memory <= 12 * kGiB; memory += kGiB / 2) {
    World world;
    world.memory = memory;
    const double now = seconds(*choose(world.input()));
    EXPECT_LE(now, 1.001 * before) << memory;  // "worth it" is a thousandth
    before = now;
    HardwareProfile faster = made_up_profile();
    faster.link_bytes_per_second *= 2;
    World fast = world;
    fast.cost = CostModel(faster);
    EXPECT_LE(seconds(*choose(fast.input())), 1.001 * now) << memory;
    PlannerInput greedy = world.input();
    greedy.acceptance = default_acceptance(0);
    EXPECT_LE(seconds(*choose(greedy)), 1.001 * now) << memory;
  }
}

TEST(Planner, TheSameInputGivesTheSamePlan) {
  const World world;
  const Choice a = *choose(world.input()), b = *choose(world.input());
  EXPECT_TRUE(std::ranges::equal(a.best.shape.parents(), b.best.shape.parents()));
  EXPECT_EQ(a.best.cost.step, b.best.cost.step);
  EXPECT_EQ(a.table.size(), b.table.size());
}

TEST(Planner, SequencesThatShareASweepMakeEachTokenCheaper) {
  const World world;
  PlannerInput in = world.input();
  const double alone = seconds(*choose(in));
  in.places = 8;
  const Choice together = *choose(in);
  EXPECT_LT(seconds(together), alone);
  EXPECT_GT(together.best.sequences, 1);
  EXPECT_LE(together.best.shape.size() * together.best.sequences, in.max_nodes);
}

TEST(Planner, NothingIsChosenWhereNothingFits) {
  World world;
  world.memory = 1 << 20;
  EXPECT_FALSE(choose(world.input()).has_value());
}

TEST(Planner, KindsThatTakeNoPartAreNotChosen) {
  const World world;
  PlannerInput in = world.input();
  in.plain = in.trees = false;
  const Candidate chain = choose(in)->best;
  EXPECT_EQ(chain.shape.levels(), chain.shape.size());
  in.chains = false;
  in.plain = true;
  EXPECT_EQ(choose(in)->best.shape.size(), 1);
}

/// A plan whose link takes longer than its tree, and the part of the tree in a sweep with a prompt.
struct FirstSweep {
  CostModel cost{made_up_profile()};
  Acceptance acceptance = default_acceptance(0.6);
  WeightPlan weights = testing::made_up_weights(kGiB / 2);  // as long as 120 rows
  TreeShape tree = best_tree(64, 8, acceptance);
  TreeShape beside(int prompt_rows) const {
    return tree_beside_prompt(cost, weights, step(tree), prompt_rows, acceptance);
  }
  StepQuery step(const TreeShape& shape) const {
    StepQuery query;
    query.shape = &shape;
    query.tokens = expected_tokens(shape, acceptance);
    query.context = 100;
    return query;
  }
  /// Seconds of the sweep with such a tree, less what its tokens would take later.
  double worth(const TreeShape& shape, int prompt_rows) const {
    const StepQuery whole = step(tree);
    StepQuery query = step(shape);
    query.prompt_rows = prompt_rows;
    return (cost.step(query, weights).step -
            query.tokens * (cost.step(whole, weights).step / whole.tokens))
        .count();
  }
};

TEST(TreeBesidePrompt, IsWholeWhereTheLinkHidesThePromptToo) {
  const FirstSweep f;
  EXPECT_EQ(f.beside(0).size(), f.tree.size());
  EXPECT_EQ(f.beside(20).size(), f.tree.size());
}

TEST(TreeBesidePrompt, IsThePartThatPaysWhereThePromptHoldsTheSweepUp) {
  const FirstSweep f;
  const TreeShape part = f.beside(1000);
  EXPECT_LT(part.size(), f.tree.size());
  EXPECT_GT(part.size(), 1);
  for (int nodes = 1; nodes <= f.tree.size(); nodes *= 2)
    EXPECT_LE(f.worth(part, 1000), f.worth(pruned(f.tree, nodes, f.acceptance), 1000)) << nodes;
}

TEST(TreeBesidePrompt, IsTheRootOfADraftThatIsNeverRight) {
  FirstSweep f;
  f.acceptance = {{1e-5, 1e-5, 1e-5}};
  EXPECT_EQ(f.beside(1000).size(), 1);
}

}  // namespace
}  // namespace canopy
