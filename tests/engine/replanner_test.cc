#include "src/engine/replanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "src/engine/session.h"
#include "src/speculation/growers/shape_grower.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

/// Grows nothing: it knows what a plan has room for.
class RoomOf final : public Drafter {
 public:
  explicit RoomOf(const Plan& plan) : device_(make_device({})), policy_(*device_, plan.policy) {}
  std::unique_ptr<DraftState> open() override { return nullptr; }
  std::vector<Draft> grow(std::span<const DraftRequest>, const TreeShape&, Stream&,
                          std::stop_token) override {
    return {};
  }
  void read(DraftState&, std::span<const TokenId>, Stream&, std::stop_token) override {}
  void conclude(DraftState&, const Draft&, const Verdict&, ConstTensorView, Stream&) override {}
  TreeRoom room() const override { return policy_.room(); }

 private:
  std::unique_ptr<Device> device_;
  ShapeGrower policy_;
};

class ReplannerTest : public TinyEngine {
 protected:
  static PlanRequest asked(double temperature) {
    PlanRequest request = options(SpeculationMethod::kAuto, 0, 0, temperature).plan;
    request.memory = 1u << 30;
    request.resident = 0;
    return request;
  }
  static Plan plan(const PlanRequest& request) {
    const ModelFiles files = models(true);
    return make_plan(request, lay_out_models(files.target, files.draft), 0,
                     scratch_of(*make_device({})));
  }
};

TEST_F(ReplannerTest, GivesATextThatTheDraftKnowsADeeperTreeAndAStrangeOneAShallowerOne) {
  const Plan planned = plan(asked(0.6));
  ASSERT_TRUE(planned.adaptive);
  const RoomOf drafter(planned);
  const auto levels_after = [&](int accepted) {
    Replanner replanner(planned, true);
    AcceptanceTracker text = replanner.tracker();
    for (int i = 0; i < 2000; ++i) text.observe(0, 8, i % 10 < 9 ? accepted : 7);
    for (int sweep = 0; sweep < 16; ++sweep)
      replanner.before_sweep({.trackers = {&text}, .context = 50}, drafter);
    EXPECT_TRUE(drafter.has_room(replanner.shape(), 1));
    return replanner.shape().levels();
  };
  EXPECT_GT(levels_after(0), planned.policy.shape.levels());
  EXPECT_LT(levels_after(-1), planned.policy.shape.levels());
}

TEST_F(ReplannerTest, ChancesByLevelAreOfDrawnChildrenThatAreJudgedFromBelow) {
  const auto levels = [](SpeculationMethod method, double temperature,
                         std::optional<double> lenience = {}) {
    EngineOptions o = options(method, 0, 0, temperature);
    o.plan.acceptance = Acceptance{{0.5, 0.2}, {{0.6, 0.2}}};
    o.plan.lenience = lenience;
    return Engine(models_for(method), o).plan().acceptance.deeper.size();
  };
  for (const SpeculationMethod method : {SpeculationMethod::kChain, SpeculationMethod::kSequoia,
                                         SpeculationMethod::kSpecInfer, SpeculationMethod::kAuto}) {
    SCOPED_TRACE(name(method));
    EXPECT_EQ(levels(method, 0.6), 1u);
    EXPECT_EQ(levels(method, 0), 0u);
  }
  for (const SpeculationMethod method :
       {SpeculationMethod::kSpecTr, SpeculationMethod::kNaive, SpeculationMethod::kTopK,
        SpeculationMethod::kGsdSequoia}) {
    SCOPED_TRACE(name(method));
    EXPECT_EQ(levels(method, 0.6), 0u);
  }
  EXPECT_EQ(levels(SpeculationMethod::kChain, 0.6, 0.5), 0u);
}

TEST_F(ReplannerTest, LooksMoreOftenTheLongerAStepIsPredictedToTake) {
  Plan planned = plan(asked(0.6));
  const RoomOf drafter(planned);
  const auto first_look = [&](double step) {
    planned.prediction->best.cost.step = Seconds(step);
    Replanner replanner(planned, true);
    AcceptanceTracker text = replanner.tracker();
    replanner.before_sweep({.trackers = {&text}, .context = 50}, drafter);  // as planned
    for (int i = 0; i < 2000; ++i) text.observe(0, 8, 0);
    int sweeps = 1;
    while (sweeps < 100 && !replanner.before_sweep({.trackers = {&text}, .context = 50}, drafter))
      ++sweeps;
    return sweeps;
  };
  EXPECT_EQ(first_look(5), 1);
  EXPECT_EQ(first_look(0.5), 4);
  EXPECT_EQ(first_look(0.001), 16);
}

TEST_F(ReplannerTest, LeavesATreeAloneThatIsAlmostTheBest) {
  const Plan planned = plan(asked(0.6));
  const RoomOf drafter(planned);
  Replanner replanner(planned, true);
  AcceptanceTracker text = replanner.tracker();  // as planned
  for (int sweep = 0; sweep < 64; ++sweep)
    EXPECT_FALSE(replanner.before_sweep({.trackers = {&text}, .context = 50}, drafter));
}

/// A machine on which a tree must gain something to pay: its draft is slow.
class ReplannerWithASlowDraft : public ReplannerTest {
 protected:
  static std::shared_ptr<const CostModel> cost() {
    static const auto slow = std::make_shared<const CostModel>([] {
      HardwareProfile p = made_up_cost()->profile();
      p.drafting = {testing::line(2e-3, 1e-6), testing::line(2e-3, 1e-6), Seconds(0)};
      return p;
    }());
    return slow;
  }
  static PlanRequest asked_of_it() {
    PlanRequest request = asked(0.6);
    request.cost = cost();
    request.acceptance = Acceptance{{0.9, 0.05, 0.02}};  // what nobody should have promised
    return request;
  }
  /// The tiny model with a draft that agrees with it by chance alone.
  static ModelFiles with_a_bad_draft() {
    ModelFiles files = models(false);
    const auto path = dir_->path() / "bad draft";
    if (!std::filesystem::exists(path)) write_noisy_copy(kTarget, path, 3.0f);
    files.draft = Checkpoint::open(path);
    return files;
  }
  /// The shapes of `sweeps` sweeps, of a text whose draft is right where `knows` says so.
  template <class Knows>
  static std::vector<int> sizes(const Plan& planned, int sweeps, const Knows& knows) {
    const RoomOf drafter(planned);
    Replanner replanner(planned, true);
    AcceptanceTracker text = replanner.tracker();
    std::vector<int> sizes;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      const TreeShape shape = replanner.shape();
      sizes.push_back(shape.size());
      const bool right = knows(sweep);
      for (int level = 1; level < shape.levels(); ++level) {
        text.observe(0, 1, right ? 0 : -1);
        if (!right) break;
      }
      replanner.before_sweep({.trackers = {&text}, .context = 50}, drafter);
    }
    return sizes;
  }
  static std::vector<int> plain_runs(const std::vector<int>& sizes) {
    std::vector<int> runs;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] != 1) continue;
      if (i == 0 || sizes[i - 1] != 1) runs.push_back(0);
      ++runs.back();
    }
    return runs;
  }
};

TEST_F(ReplannerWithASlowDraft, TurnsToPlainDecodingAndTriesAChainAfterLongerAndLongerTimes) {
  const Plan planned = plan(asked_of_it());
  ASSERT_TRUE(planned.adaptive);
  const std::vector<int> all = sizes(planned, 400, [](int) { return false; });
  const std::vector<int> runs = plain_runs(all);
  ASSERT_GE(runs.size(), 4u);
  EXPECT_EQ((std::vector<int>{runs.begin(), runs.begin() + 4}), (std::vector{16, 32, 64, 128}));
  const auto first_plain = std::find(all.begin(), all.end(), 1);
  for (auto at = first_plain; at != all.end(); ++at) EXPECT_TRUE(*at == 1 || *at == 4);
}

TEST_F(ReplannerWithASlowDraft, ComesBackToTreesWhereTheDraftKnowsTheTextAgain) {
  const Plan planned = plan(asked_of_it());
  const std::vector<int> all = sizes(planned, 600, [](int sweep) { return sweep >= 150; });
  EXPECT_NE(std::find(all.begin(), all.begin() + 150, 1), all.begin() + 150);
  EXPECT_GT(all.back(), 4);
}

TEST_F(ReplannerWithASlowDraft, TheTextIsPlainDecodingsThroughoutPlainStretchesAndTrials) {
  for (const double temperature : {0.0, 0.6}) {
    EngineOptions o = options(SpeculationMethod::kAuto, 0, 0, temperature);
    o.plan.context = 32 + 400;
    o.plan.max_prompt = 8;  // so that the draft catches up in pieces
    o.plan.cost = cost();
    o.plan.acceptance = Acceptance{{0.9, 0.05, 0.02}};
    o.plan.memory = 1u << 30;
    Engine engine(with_a_bad_draft(), o);
    const std::vector<TokenId> p = prompt(3, 8);
    Request r = request(p);
    r.max_new_tokens = 400;
    r.sampling.temperature = static_cast<float>(temperature);
    const BatchReport report = engine.generate({&r, 1});
    int plain = 0, chains = 0;
    for (const ShapeUsed& shape : report.shapes) (shape.size == 1 ? plain : chains) += 1;
    EXPECT_GE(plain, 1);
    EXPECT_GE(chains, 2) << "the chain was tried";
    if (temperature == 0) {
      EngineOptions plain_options = options(SpeculationMethod::kNone);
      plain_options.plan.context = o.plan.context;
      Engine alone(models(false), plain_options);
      EXPECT_EQ(report.texts.front().tokens, alone.generate(r).tokens);
    }
    // The next text begins anew, and is the same; at temperature 0 the draft's chances are known
    // better by then.
    const BatchReport again = engine.generate({&r, 1});
    EXPECT_EQ(again.texts.front().tokens, report.texts.front().tokens);
    if (temperature > 0) {
      EXPECT_EQ(again.shapes.size(), report.shapes.size());
    }
  }
}

TEST_F(ReplannerTest, TheTextIsPlainDecodingsWhateverShapesItHad) {
  EngineOptions o = options(SpeculationMethod::kAuto);
  o.plan.context = 32 + 400;
  o.plan.acceptance = Acceptance{{0.99, 0.004, 0.001}};  // this draft is far from that good
  Engine engine(models(true), o);
  EngineOptions plain_options = options(SpeculationMethod::kNone);
  plain_options.plan.context = o.plan.context;
  Engine plain(models(false), plain_options);
  const std::vector<TokenId> p = prompt(3);
  Request r = request(p);
  r.max_new_tokens = 400;
  const BatchReport report = engine.generate({&r, 1});
  EXPECT_EQ(report.texts.front().tokens, plain.generate(r).tokens);
  ASSERT_GT(report.shapes.size(), 1u);
  EXPECT_LT(report.shapes.back().levels, report.shapes.front().levels);
  // The next text begins anew.
  EXPECT_EQ(engine.generate({&r, 1}).shapes.size(), report.shapes.size());
}

TEST_F(ReplannerTest, ATextThatIsLeftAloneHasTheNodesOfAllAndGivesThemBack) {
  for (const double temperature : {0.0, 1.0}) {
    EngineOptions o = options(SpeculationMethod::kAuto, 0, 0, temperature);
    constexpr int kTexts = 4, kLong = 200;
    o.plan.context = 32 + kLong;
    o.plan.max_sequences = kTexts;
    o.plan.memory = 1u << 30;
    Engine engine(models(true), o);
    ASSERT_EQ(engine.plan().max_sequences, kTexts);
    ASSERT_TRUE(engine.plan().adaptive);
    const int planned = engine.plan().policy.shape.size();
    const auto asked = [&](unsigned number) {
      Request r = request(prompt(number));
      r.max_new_tokens = kLong;
      r.sampling.temperature = static_cast<float>(temperature);
      r.seed = number;
      r.reproducible = true;
      return r;
    };
    std::vector<std::vector<TokenId>> alone;
    for (unsigned i = 0; i < kTexts; ++i) alone.push_back(engine.generate(asked(i)).tokens);

    Session session = engine.open_session();
    std::vector<std::vector<TokenId>> texts(kTexts);
    const auto admit = [&](unsigned i) {
      RequestEvents events;
      events.on_end = [&texts, i](const TextReport& report) { texts[i] = report.tokens; };
      events.on_error = [](const std::string& what) { ADD_FAILURE() << what; };
      session.admit(asked(i), events);
    };
    admit(0);
    int lone = 0;
    for (int sweep = 0; sweep < 6 && session.step(); ++sweep)
      lone = std::max(lone, session.last_sweep().tree_nodes);
    EXPECT_GT(lone, planned);
    for (unsigned i = 1; i < kTexts; ++i) admit(i);
    while (session.step()) {
      const SweepReport& sweep = session.last_sweep();
      EXPECT_TRUE(sweep.texts < kTexts || sweep.tree_nodes <= planned);
    }
    for (unsigned i = 0; i < kTexts; ++i) EXPECT_EQ(texts[i], alone[i]) << i;
  }
}

}  // namespace
}  // namespace canopy
