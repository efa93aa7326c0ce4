#include "src/engine/replanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

class ReplannerTest : public TinyEngine {
 protected:
  static PlanRequest asked(double temperature) {
    PlanRequest request = options(Spec::kAuto, 0, 0, temperature).plan;
    request.memory = 1u << 30;
    request.resident = 0;
    return request;
  }
  static Plan plan(const PlanRequest& request) {
    const ModelFiles files = models(true);
    return make_plan(request, files.target, &*files.draft, 0, make_device({})->ops());
  }
};

TEST_F(ReplannerTest, GivesATextThatTheDraftKnowsADeeperTreeAndAStrangeOneAShallowerOne) {
  const Plan planned = plan(asked(0.6));
  ASSERT_TRUE(planned.adaptive);
  const auto device = make_device({});
  DraftPolicy policy(*device, planned.policy);
  const auto levels_after = [&](int accepted) {
    Replanner replanner(made_up_cost(), planned, true);
    AcceptanceTracker text = replanner.tracker();
    for (int i = 0; i < 2000; ++i) text.observe(8, i % 10 < 9 ? accepted : 7);
    const AcceptanceTracker* one = &text;
    int levels = planned.policy.shape.levels();
    for (int sweep = 0; sweep < 16; ++sweep)
      if (const auto shape = replanner.after_sweep({&one, 1}, 50, policy)) {
        EXPECT_TRUE(policy.has_room(*shape));
        levels = shape->levels();
      }
    return levels;
  };
  EXPECT_GT(levels_after(0), planned.policy.shape.levels());
  EXPECT_LT(levels_after(-1), planned.policy.shape.levels());
}

TEST_F(ReplannerTest, LooksMoreOftenTheLongerAStepIsPredictedToTake) {
  Plan planned = plan(asked(0.6));
  const auto device = make_device({});
  const DraftPolicy policy(*device, planned.policy);
  const auto first_look = [&](double step) {
    planned.prediction->best.cost.step = Seconds(step);
    Replanner replanner(made_up_cost(), planned, true);
    AcceptanceTracker text = replanner.tracker();
    for (int i = 0; i < 2000; ++i) text.observe(8, 0);
    const AcceptanceTracker* one = &text;
    int sweeps = 1;
    while (sweeps < 100 && !replanner.after_sweep({&one, 1}, 50, policy)) ++sweeps;
    return sweeps;
  };
  EXPECT_EQ(first_look(5), 1);
  EXPECT_EQ(first_look(0.5), 4);
  EXPECT_EQ(first_look(0.001), 16);
}

TEST_F(ReplannerTest, LeavesATreeAloneThatIsAlmostTheBest) {
  const Plan planned = plan(asked(0.6));
  const auto device = make_device({});
  const DraftPolicy policy(*device, planned.policy);
  Replanner replanner(made_up_cost(), planned, true);
  const AcceptanceTracker text = replanner.tracker();  // as planned
  const AcceptanceTracker* one = &text;
  for (int sweep = 0; sweep < 64; ++sweep)
    EXPECT_FALSE(replanner.after_sweep({&one, 1}, 50, policy).has_value());
}

TEST_F(ReplannerTest, TheTextIsPlainDecodingsWhateverShapesItHad) {
  EngineOptions o = options(Spec::kAuto);
  o.plan.context = 32 + 400;
  o.plan.acceptance = Acceptance{{0.99, 0.004, 0.001}};  // this draft is far from that good
  Engine engine(models(true), o);
  EngineOptions plain_options = options(Spec::kNone);
  plain_options.plan.context = o.plan.context;
  Engine plain(models(false), plain_options);
  const std::vector<TokenId> p = prompt(3);
  GenerateRequest r = request(p);
  r.max_new_tokens = 400;
  const BatchReport report = engine.generate({&r, 1});
  EXPECT_EQ(report.texts.front().tokens, plain.generate(r).tokens);
  ASSERT_GT(report.shapes.size(), 1u);
  EXPECT_LT(report.shapes.back().levels, report.shapes.front().levels);
  // The next text begins anew.
  EXPECT_EQ(engine.generate({&r, 1}).shapes.size(), report.shapes.size());
}

}  // namespace
}  // namespace canopy
