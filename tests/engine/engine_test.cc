#include "src/engine/engine.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/measure/perplexity.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

using EngineTest = TinyEngine;

TEST_F(EngineTest, GreedyTextOfAnyTreeIsPlainGreedyText) {
  Engine plain = make(SpeculationMethod::kNone);
  std::vector<std::vector<TokenId>> expected;
  for (unsigned p = 0; p < 4; ++p) expected.push_back(plain.generate(request(prompt(p))).tokens);
  int tokens = 0, steps = 0;
  for (const int size : {2, 3, 8, 31, 64, 130}) {
    for (const SpeculationMethod method :
         {SpeculationMethod::kChain, SpeculationMethod::kSequoia}) {
      if (method == SpeculationMethod::kChain && size > 31) continue;
      SCOPED_TRACE(std::string(name(method)) + " " + std::to_string(size));
      Engine engine = make(method, size);
      for (unsigned p = 0; p < 4; ++p) {
        const TextReport report = engine.generate(request(prompt(p)));
        ASSERT_EQ(report.tokens, expected[p]) << "prompt " << p;
        tokens += static_cast<int>(report.tokens.size());
        steps += report.steps;
      }
    }
  }
  // The draft does help, or the trees above were never walked; and it does fail, or nothing was
  // rejected.
  EXPECT_GT(tokens, steps * 3 / 2);
  EXPECT_LT(tokens, steps * 20);
}

TEST_F(EngineTest, GreedyTextOfEveryMethodIsPlainGreedyTextOnItsOwnShapeAndOnAGivenOne) {
  Engine plain = make(SpeculationMethod::kNone);
  const std::vector<TokenId> p = prompt(5);
  const std::vector<TokenId> expected = plain.generate(request(p)).tokens;
  for (const SpeculationMethod method :
       {SpeculationMethod::kSequoia, SpeculationMethod::kSpecInfer, SpeculationMethod::kSpecTr,
        SpeculationMethod::kNaive, SpeculationMethod::kTopK}) {
    SCOPED_TRACE(name(method));
    Engine own = make(method);
    EXPECT_EQ(own.plan().policy.drawing, Drawing::kTopK);
    EXPECT_GE(own.plan().policy.shape.size(), 40);
    EXPECT_EQ(own.generate(request(p)).tokens, expected);
    EngineOptions given = options(method);
    given.plan.shape = TreeShape::from_parents({-1, 0, 0, 0, 1, 3, 3});
    Engine on_given(models(true), given);
    EXPECT_EQ(on_given.plan().policy.shape.size(), 7);
    EXPECT_EQ(on_given.generate(request(p)).tokens, expected);
  }
}

TEST_F(EngineTest, SaysWhatEnergyPrefillAndDecodingUsedApart) {
  const TempDir machine;  // whose counter goes up with each step
  const std::filesystem::path package = machine / "sys/class/powercap/intel-rapl:0";
  std::filesystem::create_directories(package);
  std::ofstream(package / "name") << "package-0";
  std::ofstream(package / "max_energy_range_uj") << 1'000'000'000;
  const auto count = [&](int joules) {
    std::ofstream(package / "energy_uj") << joules * 1'000'000;
  };
  count(100);
  EnergyMeter meter(machine.path(), "no such library");
  EngineOptions with = options(SpeculationMethod::kNone);
  with.energy = &meter;
  Engine engine(models(false), with);
  GenerateEvents events;
  events.on_step = [&](const StepProgress& step) {
    if (step.new_tokens > 0) count(step.step == 1 ? 107 : 107 + 2 * (step.step - 1));
  };
  const std::vector<TokenId> p = prompt(1);
  Request four = request(p);
  four.max_new_tokens = 4;
  const BatchReport report = engine.generate({&four, 1}, events);
  EXPECT_EQ(report.prefill_energy, Joules{7});
  EXPECT_EQ(report.decode_energy, Joules{6});
}

TEST_F(EngineTest, TheSameSeedGivesTheSameTextAndAnotherSeedAnother) {
  Engine engine = make(SpeculationMethod::kSequoia, 12, 4, 1.0);
  Request r = request({});
  const std::vector<TokenId> p = prompt(3);
  r.prompt = p;
  r.sampling.temperature = 1.0f;
  const std::vector<TokenId> first = engine.generate(r).tokens;
  EXPECT_EQ(engine.generate(r).tokens, first);
  r.seed = 1;
  EXPECT_NE(engine.generate(r).tokens, first);
}

TEST_F(EngineTest, StopsAtAnEndTokenUnlessAskedNotTo) {
  const std::vector<TokenId> p = prompt(0);
  const std::vector<TokenId> text = make(SpeculationMethod::kNone).generate(request(p)).tokens;
  for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia}) {
    ModelFiles files = models_for(method);
    const TokenId end = text[7];
    files.tokenizer =
        std::make_unique<NumberTokenizer>(files.target.config().vocab, std::vector{end});
    Engine engine(std::move(files), options(method, 16));
    Request r = request(p);
    EXPECT_EQ(engine.generate(r).tokens, text);
    r.ignore_end = false;
    const TextReport report = engine.generate(r);
    const auto at = std::find(text.begin(), text.end(), end);
    EXPECT_EQ(report.tokens, std::vector<TokenId>(text.begin(), at + 1));
    EXPECT_EQ(report.finish_reason, "stop");
  }
}

TEST_F(EngineTest, ATraceShowsEachUnitAndStepAndChangesNothing) {
  const std::vector<TokenId> p = prompt(5);
  const std::filesystem::path file = dir_->path() / "trace.json";
  EngineOptions o = options(SpeculationMethod::kSequoia, 8);
  o.plan.resident = 0;  // all of the target travels
  std::vector<TokenId> tokens;
  int steps = 0;
  {
    Trace trace(file);
    o.trace = &trace;
    Engine engine(models(true), o);
    const TextReport report = engine.generate(request(p));
    tokens = report.tokens;
    steps = report.steps;
  }
  EXPECT_EQ(tokens, make(SpeculationMethod::kNone).generate(request(p)).tokens);
  std::map<int, int> spans;  // by lane
  int whole_steps = 0;
  std::ifstream in(file);
  for (const auto& event : nlohmann::json::parse(in)) {
    if (event.at("ph") != "X") continue;
    ++spans[event.at("tid").get<int>()];
    whole_steps += event.at("name").get<std::string>().starts_with("step");
  }
  const auto units = static_cast<int>(lay_out_sweep(Checkpoint::open(kTarget)).units.size());
  EXPECT_EQ(whole_steps, steps);
  EXPECT_EQ(spans[static_cast<int>(Trace::Lane::kTarget)], steps * units);
  EXPECT_GE(spans[static_cast<int>(Trace::Lane::kLink)], steps * units);
  EXPECT_GT(spans[static_cast<int>(Trace::Lane::kDraft)], steps * units);
}

TEST_F(EngineTest, CancelledAnywhereItKeepsWhatItHasAndGoesOnWorking) {
  Engine engine = make(SpeculationMethod::kSequoia, 8);
  const std::vector<TokenId> p = prompt(4);
  const std::vector<TokenId> whole = engine.generate(request(p)).tokens;
  for (int after = 0; after < 12; ++after) {
    std::stop_source stop;
    if (after == 0) stop.request_stop();
    int seen = 0;
    const Request r = request(p);
    const auto on_token = [&](std::size_t, TokenId) {
      if (++seen == after) stop.request_stop();
      return true;
    };
    const TextReport report =
        engine.generate({&r, 1}, {on_token, {}, {}, {}}, stop.get_token()).texts.front();
    EXPECT_EQ(report.finish_reason, "cancelled");
    EXPECT_GE(static_cast<int>(report.tokens.size()), after);
    EXPECT_TRUE(std::equal(report.tokens.begin(), report.tokens.end(), whole.begin()));
    EXPECT_EQ(engine.generate(request(p)).tokens, whole);
  }
}

TEST_F(EngineTest, ABudgetTooSmallIsRefusedWithTheSmallestThatWouldDo) {
  EngineOptions o = options(SpeculationMethod::kSequoia, 16);
  o.plan.memory = 1u << 20;
  try {
    Engine engine(models(true), o);
    FAIL() << "a budget of 1 MiB was accepted";
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("1.0 MiB is too small"), std::string::npos) << what;
    EXPECT_NE(what.find("are needed"), std::string::npos) << what;
    EXPECT_NE(what.find("draft weights"), std::string::npos) << what;
  }
}

TEST_F(EngineTest, APlanSaysWhetherTheEmbeddingsTableRests) {
  for (const auto& [resident, rests] : {std::pair{"all", true}, std::pair{"none", false}}) {
    EngineOptions o = options(SpeculationMethod::kNone);
    if (!rests) o.plan.resident = 0;
    const Engine engine(models(false), o);
    EXPECT_EQ(engine.plan().resident, rests) << resident;
    EXPECT_EQ(engine.plan().weights.table_rests, rests) << resident;
  }
}

/// Exact log probabilities of the next token after `text`, from the model itself.
std::vector<double> next_logprobs(Engine& engine, std::vector<TokenId> text) {
  Request r;
  r.prompt = text;
  r.max_new_tokens = 1;
  r.ignore_end = true;
  r.logprobs = engine.models().target.config().vocab;
  std::vector<double> out(static_cast<std::size_t>(r.logprobs));
  const TextReport report = engine.generate(r);
  for (const TokenLogprob& t : report.logprobs[0].top)
    out[static_cast<std::size_t>(t.token)] = t.logprob;
  return out;
}

TEST_F(EngineTest, LossIsTheMeanOfTheLogProbabilitiesThatGenerateReports) {
  EngineOptions o = options(SpeculationMethod::kNone);
  o.plan.max_prompt = o.plan.context = 16;
  o.plan.logit_rows = 15;
  Engine engine(models(false), o);
  Engine plain = make(SpeculationMethod::kNone);
  const std::vector<TokenId> text = prompt(5, 24);
  double sum = 0;
  for (const auto& [first, last] : {std::pair{0, 16}, std::pair{16, 24}})
    for (int i = first + 1; i < last; ++i)
      sum -= next_logprobs(
          plain, {text.begin() + first,
                  text.begin() + i})[static_cast<std::size_t>(text[static_cast<std::size_t>(i)])];
  const Loss loss = measure_loss(engine, text, 16);
  EXPECT_EQ(loss.tokens, 22);
  EXPECT_DOUBLE_EQ(loss.sum, sum);
}

}  // namespace
}  // namespace canopy
