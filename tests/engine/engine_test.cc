#include "src/engine/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

const std::filesystem::path kTarget = std::filesystem::path(CANOPY_TEST_DATA) / "model" / "llama2";
constexpr int kNew = 40;

/// A tiny model, alone or with a noisy copy of itself as the draft.
class EngineTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    draft_ = write_noisy_copy(kTarget, dir_->path() / "draft", 0.08f);
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static ModelFiles models(bool with_draft) {
    ModelFiles files{Checkpoint::open(kTarget), std::nullopt, nullptr};
    if (with_draft) files.draft = Checkpoint::open(draft_);
    files.tokenizer = std::make_unique<NumberTokenizer>(files.target.config().vocab,
                                                        files.target.config().end_tokens);
    return files;
  }
  static EngineOptions options(Spec spec, int tree = 0, int levels = 0, double temperature = 0) {
    EngineOptions o;
    o.device.threads = 2;
    o.plan.spec = spec;
    o.plan.tree_size = tree;
    o.plan.tree_levels = levels;
    o.plan.temperature = temperature;
    o.plan.max_prompt = 32;
    o.plan.context = 32 + kNew;
    return o;
  }
  static Engine make(Spec spec, int tree = 0, int levels = 0, double temperature = 0) {
    return Engine(models(spec != Spec::kNone), options(spec, tree, levels, temperature));
  }
  static std::vector<TokenId> prompt(unsigned seed, int tokens = 20) {
    std::mt19937 random(seed);
    const auto vocab = static_cast<unsigned>(Checkpoint::open(kTarget).config().vocab);
    std::vector<TokenId> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<TokenId>(random() % vocab));
    return ids;
  }
  static GenerateRequest request(std::span<const TokenId> prompt) {
    GenerateRequest r;
    r.prompt = prompt;
    r.max_new_tokens = kNew;
    r.ignore_end = true;
    return r;
  }

  static inline std::unique_ptr<TempDir> dir_;
  static inline std::filesystem::path draft_;
};

TEST_F(EngineTest, GreedyTextOfAnyTreeIsPlainGreedyText) {
  Engine plain = make(Spec::kNone);
  std::vector<std::vector<TokenId>> expected;
  for (unsigned p = 0; p < 4; ++p) expected.push_back(plain.generate(request(prompt(p))).tokens);
  int tokens = 0, steps = 0;
  for (const int size : {2, 3, 8, 31, 64, 130}) {
    for (const Spec spec : {Spec::kChain, Spec::kSequoia}) {
      if (spec == Spec::kChain && size > 31) continue;
      SCOPED_TRACE(std::string(name(spec)) + " " + std::to_string(size));
      Engine engine = make(spec, size);
      for (unsigned p = 0; p < 4; ++p) {
        const GenerateReport report = engine.generate(request(prompt(p)));
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
  Engine plain = make(Spec::kNone);
  const std::vector<TokenId> p = prompt(5);
  const std::vector<TokenId> expected = plain.generate(request(p)).tokens;
  for (const Spec spec :
       {Spec::kSequoia, Spec::kSpecInfer, Spec::kSpecTr, Spec::kNaive, Spec::kTopK}) {
    SCOPED_TRACE(name(spec));
    Engine own = make(spec);
    EXPECT_EQ(own.plan().policy.drawing, Drawing::kTopK);
    EXPECT_GE(own.plan().policy.shape.size(), 40);
    EXPECT_EQ(own.generate(request(p)).tokens, expected);
    EngineOptions given = options(spec);
    given.plan.shape = TreeShape::from_parents({-1, 0, 0, 0, 1, 3, 3});
    Engine on_given(models(true), given);
    EXPECT_EQ(on_given.plan().policy.shape.size(), 7);
    EXPECT_EQ(on_given.generate(request(p)).tokens, expected);
  }
}

/// Exact log probabilities of the next token after `text`, from the model itself.
std::vector<double> next_logprobs(Engine& engine, std::vector<TokenId> text) {
  GenerateRequest r;
  r.prompt = text;
  r.max_new_tokens = 1;
  r.ignore_end = true;
  r.logprobs = engine.models().target.config().vocab;
  std::vector<double> out(static_cast<std::size_t>(r.logprobs));
  const GenerateReport report = engine.generate(r);
  for (const TokenLogprob& t : report.logprobs[0].top)
    out[static_cast<std::size_t>(t.token)] = t.logprob;
  return out;
}

/// What sampling makes of log probabilities: temperature, then the smallest set of at least top_p.
std::vector<double> warped(std::vector<double> p, double temperature, double top_p) {
  double sum = 0;
  for (double& x : p) sum += x = std::exp(x / temperature);
  std::vector<std::size_t> order(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] /= sum, order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
  double mass = 0, kept = 0;
  for (const std::size_t i : order) {
    if (mass >= top_p) p[i] = 0;
    mass += p[i];
    kept += p[i];
  }
  for (double& x : p) x /= kept;
  return p;
}

struct Sampled {
  Spec spec;
  double temperature, top_p;
};
class SampledText : public EngineTest, public ::testing::WithParamInterface<Sampled> {};

TEST_P(SampledText, OfATreeHasTheTargetsDistribution) {
  const auto [spec, temperature, top_p] = GetParam();
  const std::vector<TokenId> start = prompt(2);
  Engine plain = make(Spec::kNone);
  EngineOptions tree_options = options(spec, 0, 0, temperature);
  tree_options.plan.shape = TreeShape::from_parents({-1, 0, 0, 0, 1, 1});
  tree_options.device.threads = 1;  // thousands of steps of a few microseconds each
  Engine tree(models(true), tree_options);

  // The second token: reached inside a tree about as often as after one. Its distribution, given
  // the first, is exact.
  const std::vector<double> first = warped(next_logprobs(plain, start), temperature, top_p);
  std::map<std::pair<TokenId, TokenId>, double> expected;
  for (std::size_t a = 0; a < first.size(); ++a) {
    if (first[a] < 0.01) continue;
    std::vector<TokenId> longer = start;
    longer.push_back(static_cast<TokenId>(a));
    const std::vector<double> second = warped(next_logprobs(plain, longer), temperature, top_p);
    for (std::size_t b = 0; b < second.size(); ++b)
      if (second[b] > 0)
        expected[{static_cast<TokenId>(a), static_cast<TokenId>(b)}] = first[a] * second[b];
  }

  constexpr int kSamples = 4000;
  std::map<std::pair<TokenId, TokenId>, int> seen;
  int accepted = 0;
  for (int i = 0; i < kSamples; ++i) {
    GenerateRequest r = request(start);
    r.max_new_tokens = 2;
    r.sampling = {static_cast<float>(temperature), 0, static_cast<float>(top_p)};
    r.seed = static_cast<std::uint64_t>(i);
    const GenerateReport report = tree.generate(r);
    ++seen[{report.tokens[0], report.tokens[1]}];
    accepted += report.steps == 1;
  }
  EXPECT_GT(accepted, kSamples / 10);             // trees do matter here,
  EXPECT_LT(accepted, kSamples - kSamples / 10);  // and so does what follows a rejection

  // Chi-square over pairs expected at least 5 times, all others in one cell.
  double statistic = 0, rest = kSamples;
  int rest_seen = kSamples, cells = 0;
  for (const auto& [pair, p] : expected) {
    const double e = p * kSamples;
    if (e < 5) continue;
    const int o = seen.contains(pair) ? seen[pair] : 0;
    statistic += (o - e) * (o - e) / e;
    rest -= e;
    rest_seen -= o;
    ++cells;
  }
  if (rest >= 5) statistic += (rest_seen - rest) * (rest_seen - rest) / rest, ++cells;
  ASSERT_GE(cells, 8);
  // Wilson-Hilferty: the cube root of a chi-square is nearly normal; 4 standard deviations, p of
  // 3e-5.
  const double k = cells - 1, spread = 2.0 / (9 * k);
  EXPECT_LT(statistic, k * std::pow(1 - spread + 4 * std::sqrt(spread), 3)) << cells << " cells";
}

INSTANTIATE_TEST_SUITE_P(
    Methods, SampledText,
    ::testing::Values(Sampled{Spec::kSequoia, 1.0, 1.0}, Sampled{Spec::kSequoia, 0.6, 1.0},
                      Sampled{Spec::kSequoia, 1.0, 0.9}, Sampled{Spec::kSpecInfer, 1.0, 0.9},
                      Sampled{Spec::kSpecTr, 1.0, 0.9}, Sampled{Spec::kNaive, 0.6, 1.0},
                      Sampled{Spec::kTopK, 1.0, 0.9}),
    [](const auto& info) {
      return std::string(name(info.param.spec)) + std::to_string(info.index);
    });

TEST_F(EngineTest, TheSameSeedGivesTheSameTextAndAnotherSeedAnother) {
  Engine engine = make(Spec::kSequoia, 12, 4, 1.0);
  GenerateRequest r = request({});
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
  const std::vector<TokenId> text = make(Spec::kNone).generate(request(p)).tokens;
  for (const Spec spec : {Spec::kNone, Spec::kSequoia}) {
    ModelFiles files = models(spec != Spec::kNone);
    const TokenId end = text[7];
    files.tokenizer =
        std::make_unique<NumberTokenizer>(files.target.config().vocab, std::vector{end});
    Engine engine(std::move(files), options(spec, 16));
    GenerateRequest r = request(p);
    EXPECT_EQ(engine.generate(r).tokens, text);
    r.ignore_end = false;
    const GenerateReport report = engine.generate(r);
    const auto at = std::find(text.begin(), text.end(), end);
    EXPECT_EQ(report.tokens, std::vector<TokenId>(text.begin(), at + 1));
    EXPECT_EQ(report.finish_reason, "stop");
  }
}

TEST_F(EngineTest, ATraceShowsEachUnitAndStepAndChangesNothing) {
  const std::vector<TokenId> p = prompt(5);
  const std::filesystem::path file = dir_->path() / "trace.json";
  EngineOptions o = options(Spec::kSequoia, 8);
  o.plan.resident = 0;  // all of the target travels
  std::vector<TokenId> tokens;
  int steps = 0;
  {
    Trace trace(file);
    o.trace = &trace;
    Engine engine(models(true), o);
    const GenerateReport report = engine.generate(request(p));
    tokens = report.tokens;
    steps = report.steps;
  }
  EXPECT_EQ(tokens, make(Spec::kNone).generate(request(p)).tokens);
  std::map<int, int> spans;  // by lane
  int whole_steps = 0;
  std::ifstream in(file);
  for (const auto& event : nlohmann::json::parse(in)) {
    if (event.at("ph") != "X") continue;
    ++spans[event.at("tid").get<int>()];
    whole_steps += event.at("name").get<std::string>().starts_with("step");
  }
  const auto units =
      static_cast<int>(lay_out_units(Checkpoint::open(kTarget), kReadAlignment).size());
  EXPECT_EQ(whole_steps, steps);
  EXPECT_EQ(spans[static_cast<int>(Trace::Lane::kTarget)], steps * units);
  EXPECT_GE(spans[static_cast<int>(Trace::Lane::kLink)], steps * units);
  EXPECT_GT(spans[static_cast<int>(Trace::Lane::kDraft)], steps * units);
}

TEST_F(EngineTest, CancelledAnywhereItKeepsWhatItHasAndGoesOnWorking) {
  Engine engine = make(Spec::kSequoia, 8);
  const std::vector<TokenId> p = prompt(4);
  const std::vector<TokenId> whole = engine.generate(request(p)).tokens;
  for (int after = 0; after < 12; ++after) {
    std::stop_source stop;
    if (after == 0) stop.request_stop();
    int seen = 0;
    const GenerateRequest r = request(p);
    const auto on_token = [&](std::size_t, TokenId) {
      if (++seen == after) stop.request_stop();
    };
    const GenerateReport report =
        engine.generate({&r, 1}, {on_token, {}, {}}, stop.get_token()).texts.front();
    EXPECT_EQ(report.finish_reason, "cancelled");
    EXPECT_GE(static_cast<int>(report.tokens.size()), after);
    EXPECT_TRUE(std::equal(report.tokens.begin(), report.tokens.end(), whole.begin()));
    EXPECT_EQ(engine.generate(request(p)).tokens, whole);
  }
}

TEST_F(EngineTest, ABudgetTooSmallIsRefusedWithTheSmallestThatWouldDo) {
  EngineOptions o = options(Spec::kSequoia, 16);
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

TEST_F(EngineTest, LossIsTheMeanOfTheLogProbabilitiesThatGenerateReports) {
  EngineOptions o = options(Spec::kNone);
  o.plan.max_prompt = o.plan.context = 16;
  o.plan.logit_rows = 15;
  Engine engine(models(false), o);
  Engine plain = make(Spec::kNone);
  const std::vector<TokenId> text = prompt(5, 24);
  double sum = 0;
  for (const auto& [first, last] : {std::pair{0, 16}, std::pair{16, 24}})
    for (int i = first + 1; i < last; ++i)
      sum -= next_logprobs(
          plain, {text.begin() + first,
                  text.begin() + i})[static_cast<std::size_t>(text[static_cast<std::size_t>(i)])];
  const Engine::Loss loss = engine.loss(text, 16);
  EXPECT_EQ(loss.tokens, 22);
  EXPECT_DOUBLE_EQ(loss.sum, sum);
}

}  // namespace
}  // namespace canopy
