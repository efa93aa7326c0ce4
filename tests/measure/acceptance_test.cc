#include "src/measure/acceptance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "src/base/error.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

const std::filesystem::path kTarget = std::filesystem::path(CANOPY_TEST_DATA) / "model" / "llama2";
constexpr int kPrompt = 12, kNew = 30;

/// A tiny model with a noisy copy of itself as the draft.
class MeasureAcceptance : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    draft_ = write_noisy_copy(kTarget, dir_->path() / "draft", 0.08f);
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static ModelFiles models(std::vector<TokenId> ends = {}) {
    ModelFiles files{Checkpoint::open(kTarget), Checkpoint::open(draft_), nullptr};
    files.tokenizer =
        std::make_unique<NumberTokenizer>(files.target.config().vocab, std::move(ends));
    return files;
  }
  static EngineOptions options(double temperature) {
    EngineOptions o;
    o.device.threads = 2;
    o.plan.temperature = temperature;
    o.plan.max_prompt = kPrompt;
    o.plan.context = kPrompt + kNew;
    return o;
  }
  static std::vector<AcceptanceRun> measured_by(Engine engine, const AcceptanceRequest& request) {
    return measure_acceptance(engine, request);
  }
  static Engine prober(int sequences, double temperature, std::vector<TokenId> ends = {},
                       std::optional<std::uint64_t> resident = {}) {
    EngineOptions o = options(temperature);
    o.plan.probe = true;
    o.plan.max_sequences = sequences;
    o.plan.resident = resident;
    return Engine(models(std::move(ends)), o);
  }
  static std::vector<PromptCut> prompts(int count) {
    std::mt19937 random(9);
    std::vector<PromptCut> cuts;
    for (int i = 0; i < count; ++i) {
      PromptCut cut{i, {}};
      for (int k = 0; k < kPrompt - i % 3; ++k)  // of different lengths
        cut.tokens.push_back(static_cast<TokenId>(random() % 90));
      cuts.push_back(cut);
    }
    return cuts;
  }
  static AcceptanceRequest request(std::span<const PromptCut> cuts, float temperature) {
    AcceptanceRequest r;
    r.prompts = cuts;
    r.sampling.temperature = temperature;
    r.seed = 4;
    r.new_tokens = kNew;
    return r;
  }

  static inline std::unique_ptr<TempDir> dir_;
  static inline std::filesystem::path draft_;
};

/// Sweeps that a tree needs for kNew tokens of a greedy text, if the text goes on with these ranks.
int steps_of(const TreeShape& shape, const AcceptanceRun& run) {
  int steps = 0;
  for (std::size_t i = 0; i < kNew; ++steps) {
    NodeId node = 0;
    while (i < kNew) {
      const int taken = run.positions[i++].taken;
      if (taken < 0 || taken >= shape.child_count(node)) break;  // that token ended the step
      NodeId child = node + 1;
      while (shape.parent(child) != node) ++child;
      node = child + taken;
    }
  }
  return steps;
}

TEST_F(MeasureAcceptance, GreedyRunsTellExactlyHowManyStepsAnyTreeTakes) {
  const std::vector<PromptCut> cuts = prompts(6);
  const auto runs = measured_by(prober(6, 0), request(cuts, 0));
  int fewest = kNew, most = 0;
  for (const TreeShape& shape :
       {TreeShape::chain(5), TreeShape::branching(std::vector{4, 3, 2, 1, 1}),
        TreeShape::from_parents({-1, 0, 0, 0, 1, 1, 2, 4, 7})}) {
    EngineOptions o = options(0);
    o.plan.shape = shape;
    Engine engine(models(), o);
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      Request r;
      r.prompt = cuts[i].tokens;
      r.max_new_tokens = kNew;
      const TextReport report = engine.generate(r);
      ASSERT_EQ(runs[i].positions.size(), std::size_t{kNew});
      EXPECT_EQ(steps_of(shape, runs[i]), report.steps) << "prompt " << i;
      fewest = std::min(fewest, report.steps);
      most = std::max(most, report.steps);
    }
  }
  EXPECT_LT(fewest, most);  // or the draft is always right, or always wrong
}

TEST_F(MeasureAcceptance, ChancesAreHowOftenGenerationAcceptsSoManyChildren) {
  constexpr int kTexts = 3000;
  constexpr float kTemperature = 0.8f;
  std::vector<PromptCut> cuts = prompts(1);
  cuts.resize(400, cuts[0]);  // the same prompt, with other random numbers
  AcceptanceRequest probe = request(cuts, kTemperature);
  probe.new_tokens = 1;
  const auto runs = measured_by(prober(50, kTemperature), probe);
  for (const int children : {1, 2, 5}) {
    double mean = 0, squares = 0;
    int taken = 0;
    for (const AcceptanceRun& run : runs) {
      const auto& accept = run.positions[0].accept;
      const double chance = std::accumulate(accept.begin(), accept.begin() + children, 0.0);
      mean += chance / static_cast<double>(runs.size());
      squares += chance * chance / static_cast<double>(runs.size());
      taken += run.positions[0].taken >= 0 && run.positions[0].taken < children;
    }
    EngineOptions o = options(kTemperature);
    o.plan.shape = TreeShape::branching(std::vector{children});
    o.plan.max_sequences = 40;
    Engine engine(models(), o);
    std::vector<Request> requests(kTexts);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt = cuts[0].tokens;
      requests[i].sampling.temperature = kTemperature;
      requests[i].seed = 77;
      requests[i].sequence = static_cast<std::uint32_t>(i);
      requests[i].max_new_tokens = 2;
    }
    int accepted = 0;  // two tokens of one step
    for (const TextReport& text : engine.generate(requests).texts) accepted += text.steps == 1;
    const double error = std::sqrt(mean * (1 - mean) / kTexts) +
                         std::sqrt((squares - mean * mean) / static_cast<double>(runs.size()));
    EXPECT_NEAR(accepted / double{kTexts}, mean, 4 * error) << children << " children";
    EXPECT_NEAR(taken / static_cast<double>(runs.size()), mean,
                4 * std::sqrt(mean * (1 - mean) / static_cast<double>(runs.size())));
    EXPECT_GT(mean, 0.1);
    EXPECT_LT(mean, 0.95);
  }
}

bool same(const std::vector<AcceptanceRun>& a, const std::vector<AcceptanceRun>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.text == y.text &&
           std::equal(x.positions.begin(), x.positions.end(), y.positions.begin(),
                      y.positions.end(), [](const auto& p, const auto& q) {
                        return p.accept == q.accept && p.taken == q.taken && p.in_loop == q.in_loop;
                      });
  });
}

TEST_F(MeasureAcceptance, DoesNotDependOnHowManySequencesShareASweepNorOnWhereWeightsLie) {
  const std::vector<PromptCut> cuts = prompts(7);
  for (const float temperature : {0.0f, 1.0f}) {
    const AcceptanceRequest r = request(cuts, temperature);
    const auto alone = measured_by(prober(1, temperature), r);
    EXPECT_TRUE(same(alone, measured_by(prober(3, temperature), r)));
    Engine streamed = prober(7, temperature, {}, 0);
    EXPECT_FALSE(streamed.plan().resident);
    EXPECT_TRUE(same(alone, measure_acceptance(streamed, r)));
    Engine all = prober(7, temperature);
    EXPECT_TRUE(all.plan().resident);
    EXPECT_TRUE(same(alone, measure_acceptance(all, r)));
    EXPECT_TRUE(same(alone, measure_acceptance(all, r))) << "a second time";
  }
}

TEST_F(MeasureAcceptance, EndsARunWhereTheModelEndsItsText) {
  const std::vector<PromptCut> cuts = prompts(5);
  Engine plain(models(), [] {
    EngineOptions o = options(0);
    o.plan.method = SpeculationMethod::kNone;
    return o;
  }());
  Request r;
  r.prompt = cuts[2].tokens;
  r.max_new_tokens = kNew;
  const TokenId end = plain.generate(r).tokens[10];
  const auto runs = measured_by(prober(2, 0, {end}), request(cuts, 0));
  EXPECT_LE(runs[2].positions.size(), 11u);
  for (const AcceptanceRun& run : runs) EXPECT_GE(run.positions.size(), 1u);
}

TEST_F(MeasureAcceptance, StopsAtOnceAndCanBeAskedAgain) {
  const std::vector<PromptCut> cuts = prompts(4);
  const AcceptanceRequest r = request(cuts, 1);
  Engine engine = prober(2, 1);
  const auto runs = measure_acceptance(engine, r);
  std::stop_source stop;
  int told = 0;
  EXPECT_THROW(measure_acceptance(
                   engine, r,
                   [&](const AcceptanceProgress& p) {
                     told += p.positions == 7 * 2;
                     if (p.positions >= 7 * 2) stop.request_stop();
                   },
                   stop.get_token()),
               Stopped);
  EXPECT_GT(told, 0);
  EXPECT_TRUE(same(runs, measure_acceptance(engine, r)));
}

TEST_F(MeasureAcceptance, RefusesWhatItsPlanHasNoRoomFor) {
  std::vector<PromptCut> cuts = prompts(2);
  Engine engine = prober(2, 0);
  AcceptanceRequest r = request(cuts, 0);
  r.new_tokens = kNew + 2;
  EXPECT_THROW(measure_acceptance(engine, r), Error);
  cuts[1].tokens.resize(kPrompt + 1);
  EXPECT_THROW(measure_acceptance(engine, request(cuts, 0)), Error);
  cuts[1].tokens.clear();
  EXPECT_THROW(measure_acceptance(engine, request(cuts, 0)), Error);
  EngineOptions speculating = options(0);
  speculating.plan.shape = TreeShape::chain(2);
  Engine other(models(), speculating);
  const auto fit = prompts(2);
  EXPECT_THROW(measure_acceptance(other, request(fit, 0)), Error);
}

}  // namespace
}  // namespace canopy
