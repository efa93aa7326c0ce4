// Trees that the draft's rows shape, in an engine.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "planner/acceptance.h"
#include "src/speculation/drafters/model_drafter.h"
#include "tests/engine/tiny_engine.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

constexpr SpeculationMethod kCalibrated = SpeculationMethod::kCalibrated;

/// Evidence of nothing, whose weights are these.
Calibrated with_weights(const ChanceVector& w) {
  Calibrated calibrated;
  for (const ChanceKind kind : {ChanceKind::kGreedy, ChanceKind::kSampled})
    for (std::size_t i = 0; i < w.size(); ++i)
      calibrated.of(kind).chance.moment[i] = w[i] - prior_weights(kind)[i];
  return calibrated;
}

ChanceVector any_weights(std::mt19937& random) {
  std::normal_distribution<double> normal(0, 1);
  ChanceVector w;
  for (double& one : w) one = normal(random);
  w[4] += 1;
  return w;
}

class ValuedTrees : public TinyEngine {
 protected:
  /// Texts of all kinds: greedy, with a seed, and one whose children are drawn where the plan's
  /// are.
  static std::vector<Request> mixed(unsigned seed) {
    std::vector<Request> requests;
    for (unsigned i = 0; i < 5; ++i) {
      Request r = request(prompt(10 * seed + i));
      r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.5f + 0.2f * static_cast<float>(i);
      r.reproducible = i < 4;
      r.seed = seed + i;
      r.sequence = i;
      if (i == 4) r.sampling.temperature = 1;
      requests.push_back(r);
    }
    return requests;
  }
};

TEST_F(ValuedTrees, WritePlainDecodingsTextForAnyWeightsSizesAndCapsAloneAndBesideDrawnTexts) {
  // A GPU rounds activations, and keeps keys and values in 16 bits: its texts are compared with its
  // own.
  const auto emulated = [](EngineOptions o) {
    o.make_device = [] { return std::make_unique<EmulatedCuda>(); };
    return o;
  };
  Engine plain_on_cpu = make(SpeculationMethod::kNone);
  Engine plain_on_gpu(models(false), emulated(options(SpeculationMethod::kNone)));
  int saved = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int nodes = 2 + static_cast<int>(random() % 40);
    const int levels = seed % 3 == 0 ? 2 + static_cast<int>(random() % 6) : 0;
    EngineOptions o = options(kCalibrated, nodes, nodes < 20 ? 0 : levels, seed % 2);
    o.plan.calibrated = with_weights(any_weights(random));
    o.plan.max_sequences = 1 + static_cast<int>(random() % 5);
    if (seed % 5 == 4) o.plan.cost = dear_drafts();
    const bool on_gpu = seed % 4 == 3;
    Engine engine(models(true), on_gpu ? emulated(o) : o);
    Engine& plain = on_gpu ? plain_on_gpu : plain_on_cpu;
    ASSERT_EQ(engine.plan().method, kCalibrated);
    EXPECT_EQ(engine.plan().policy.shape.size(), nodes);
    const std::vector<Request> requests = mixed(seed);
    const BatchReport report = engine.generate(requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(std::ssize(report.texts[i].tokens), kNew);
      if (!requests[i].reproducible) continue;
      EXPECT_EQ(report.texts[i].tokens, plain.generate(requests[i]).tokens) << i;
      saved += kNew - report.texts[i].steps;
    }
  }
  EXPECT_GT(saved, 200);
}

TEST_F(ValuedTrees, LeaveDrawnTextsTheTreesThatTheyHaveAlone) {
  EngineOptions o = options(kCalibrated, 12, 4, 1.0);
  o.plan.max_sequences = 5;
  Engine engine(models(true), o);
  o.plan.method = SpeculationMethod::kSequoia;
  Engine shapes(models(true), o);
  ASSERT_EQ(engine.plan().policy.shape, shapes.plan().policy.shape);
  const std::vector<Request> requests = mixed(3);
  Session session = engine.open_session();
  std::vector<Ticket> tickets;
  std::vector<TokenId> drawn;
  for (const Request& r : requests) {
    RequestEvents events;
    if (!r.reproducible)
      events.on_token = [&](TokenId token, const TokenReport*) {
        drawn.push_back(token);
        return true;
      };
    tickets.push_back(session.admit(r, events));
  }
  const TreeShape& shape = engine.plan().policy.shape;
  int other_shapes = 0;
  while (session.step())
    for (const CheckedTree& tree : session.last_sweep().trees) {
      EXPECT_LE(std::ssize(tree.parents), shape.size());
      const bool is_shape = std::equal(tree.parents.begin(), tree.parents.end(),
                                       shape.parents().begin(), shape.parents().end());
      EXPECT_TRUE(is_shape || tree.text != tickets[4]);
      other_shapes += tree.text != tickets[4] && !is_shape ? 1 : 0;
    }
  EXPECT_GT(other_shapes, 10);
  EXPECT_EQ(drawn, shapes.generate(requests[4]).tokens);
}

TEST_F(ValuedTrees, LearnOfTheNodesThatTheVerifierStoodOnAlone) {
  EngineOptions o = options(kCalibrated, 24);
  Engine engine(models(true), o);
  Session session = engine.open_session();
  for (unsigned p = 0; p < 3; ++p) session.admit(request(prompt(p)), {});
  int least = 0, most = 0, checked = 0, sweeps = 0;
  while (session.step())
    for (const CheckedTree& tree : session.last_sweep().trees) {
      if (tree.parents.size() == 1) continue;
      ++sweeps;
      least += static_cast<int>(tree.path.size()) - 1;
      most += static_cast<int>(tree.path.size());
      checked += static_cast<int>(tree.parents.size());
    }
  const CalibratedKind& greedy = session.learned().calibrated().greedy;
  EXPECT_GE(greedy.chance.contexts, least);
  EXPECT_LE(greedy.chance.contexts, most);
  EXPECT_LT(most, checked / 2);
  EXPECT_EQ(session.learned().calibrated().sampled, CalibratedKind());
  double shown = 0;
  for (const ValuedSizes::Bin& bin : greedy.sizes.bins) shown += bin.sweeps;
  EXPECT_EQ(shown, sweeps);
  // All that was learned is handed out once, and is in the weights of the next text.
  Session next = engine.open_session();
  EXPECT_FALSE(next.step());
  EXPECT_EQ(next.learned().calibrated(), Calibrated());
}

TEST_F(ValuedTrees, KnowTheAcceptanceOfEveryRankWhateverTheirChildrenAre) {
  EngineOptions o = options(kCalibrated, 6);
  const BatchReport report = Engine(models(true), o).generate(std::vector{request(prompt(1))});
  ASSERT_EQ(report.learned.texts(), 1);
  // Six nodes have five children at most, and all sixteen ranks were asked for.
  const std::string json = report.learned.to_json();
  const auto asked = nlohmann::json::parse(json)["texts"][0]["asked"];
  EXPECT_EQ(asked.size(), static_cast<std::size_t>(kChanceRanks));
}

TEST_F(ValuedTrees, TakeWhatIsPlannedOfADeviceAndOfTheLedger) {
  for (const double temperature : {0.0, 1.0}) {
    EngineOptions o = options(kCalibrated, 20, 0, temperature);
    o.plan.max_sequences = 4;
    EmulatedCuda* device = nullptr;
    o.make_device = [&] {
      auto made = std::make_unique<EmulatedCuda>();
      device = made.get();
      return made;
    };
    Engine engine(models(true), o);
    std::vector<Request> requests = mixed(1);
    for (Request& r : requests) r.edits.repetition = 1.2f;
    engine.generate(requests);
    const Plan& plan = engine.plan();
    EXPECT_LE(device->card().most_held(), plan.device->total());
    EXPECT_GE(plan.draft_limits.max_tree, plan.policy.room.run);
    EXPECT_GE(plan.policy.room.run, 4 * (20 + kSpareForwards * valued_rows(20)));
    // No row of the vocabulary is kept where no children are drawn.
    EXPECT_EQ(uses_q(plan.policy.drawing), temperature > 0);
    ShapeGrower::Config unedited = plan.policy;
    unedited.edited_context = 0;
    const auto rows = static_cast<std::size_t>(plan.policy.room.widest);
    const std::size_t best = rows * (kChanceRanks * 2 * sizeof(float) + sizeof(float));
    ShapeGrower::Config shapes = unedited;
    shapes.growth.kind = Growth::Kind::kShape;
    EXPECT_EQ(ModelDrafter::grower_bytes(unedited),
              best + (temperature > 0 ? ModelDrafter::grower_bytes(shapes) : 0));
  }
}

TEST_F(ValuedTrees, PenaltiesAndCancelledTextsLeaveNoEvidenceBehind) {
  Engine engine = make(kCalibrated, 16), plain = make(SpeculationMethod::kNone);
  Request r = request(prompt(4));
  r.edits.repetition = 1.3f;
  const BatchReport report = engine.generate(std::vector{r});
  EXPECT_EQ(report.texts.front().tokens, plain.generate(r).tokens);
  EXPECT_EQ(report.learned.calibrated(), Calibrated());
}

TEST_F(ValuedTrees, DraftLessWhereForwardsAreDear) {
  const auto rows = [&](const std::shared_ptr<const CostModel>& cost) {
    EngineOptions o = options(kCalibrated, 24);
    o.plan.cost = cost;
    const TextReport text = Engine(models(true), o).generate(request(prompt(1)));
    return static_cast<double>(text.drafted_rows) / text.steps;
  };
  const double dear = rows(dear_drafts()), cheap = rows(made_up_cost());
  EXPECT_LT(dear, cheap);
  EXPECT_GT(dear, 0);
}

TEST_F(ValuedTrees, AreTakenAtTemperatureZeroWhereTheyArePredictedToBeFaster) {
  const auto chosen = [](double temperature, double gain) {
    EngineOptions o = options(SpeculationMethod::kAuto, 0, 0, temperature);
    // Evidence of their tokens, `gain` times those of trees by rank.
    const Acceptance acceptance = default_acceptance(temperature);
    for (int nodes = 2; nodes <= 1024; nodes *= 2)
      for (int i = 0; i < 4000; ++i)
        for (CalibratedKind* kind : {&o.plan.calibrated.greedy, &o.plan.calibrated.sampled})
          kind->sizes.observe(nodes,
                              gain * expected_tokens(best_tree(nodes, 32, acceptance), acceptance));
    const Engine engine(models(true), o);
    EXPECT_TRUE(engine.plan().adaptive);
    EXPECT_EQ(engine.plan().prediction->best.valued, engine.plan().method == kCalibrated);
    return engine.plan().method;
  };
  EXPECT_EQ(chosen(0, 1.5), kCalibrated);
  EXPECT_NE(chosen(0, 0.8), kCalibrated);
  EXPECT_NE(chosen(0.6, 1.5), kCalibrated) << "children are drawn";
}

TEST_F(ValuedTrees, FollowTheTextsWhereNobodyGivesTheirSize) {
  EngineOptions o = options(kCalibrated);
  o.plan.max_sequences = 3;
  o.plan.memory = 1u << 30;
  Engine engine(models(true), o);
  EXPECT_TRUE(engine.plan().adaptive);
  EXPECT_TRUE(engine.plan().prediction->best.valued);
  expect_shared_sweeps_to_keep_texts(engine);
}

}  // namespace
}  // namespace canopy
