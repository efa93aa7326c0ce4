// Medusa heads in an engine: whatever they guess, the text is the target's own.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/convert/enlarge/inflate.h"
#include "src/convert/pack/pack.h"
#include "src/engine/head_source.h"
#include "tests/checkpoint/heads_file.h"
#include "tests/engine/tiny_engine.h"
#include "tests/error_of.h"

namespace canopy {
namespace {

class HeadsEngine : public TinyEngine {
 protected:
  static constexpr int kHeads = 3;

  void SetUp() override { write({.heads = kHeads, .deviation = 0.3f}); }
  void write(const testing::HeadsOptions& options) {
    testing::write_heads_file(own_ / "heads.safetensors", options);
  }
  ModelFiles with_heads() const {
    ModelFiles files = models(false);
    files.heads = open_medusa_heads(own_ / "heads.safetensors", files.target);
    return files;
  }
  Engine make_with_heads(EngineOptions o) const {
    ModelFiles files = with_heads();
    o.plan.draft = head_source(*files.heads, files.target);
    return Engine(std::move(files), o);
  }
  const TempDir own_;
};

TEST_F(HeadsEngine, WritePlainDecodingsText) {
  Engine plain = make(SpeculationMethod::kNone);
  for (const int vocab : {0, 97}) {
    write({.heads = kHeads, .vocab = vocab, .blocks = 2});
    Engine chain = make_with_heads(options(SpeculationMethod::kChain, 4));
    Engine tree = make_with_heads(options(SpeculationMethod::kTopK, 14, 4));
    for (unsigned p = 0; p < 4; ++p)
      for (const float temperature : {0.0f, 1.0f}) {
        Request r = request(prompt(p));
        r.sampling.temperature = temperature;
        r.seed = 3;
        r.reproducible = true;
        const std::vector<TokenId> text = plain.generate(r).tokens;
        EXPECT_EQ(chain.generate(r).tokens, text);
        EXPECT_EQ(tree.generate(r).tokens, text);
      }
  }
}

TEST_F(HeadsEngine, GuessWhatPyTorchSays) {
  const std::filesystem::path folder = test_data() / "speculation";
  std::ifstream in(folder / "medusa.golden.json");
  const nlohmann::json golden = nlohmann::json::parse(in);
  const auto prompt = golden.at("prompt").get<std::vector<TokenId>>();
  const auto expected = golden.at("text").get<std::vector<TokenId>>();
  for (const std::string kind : {"tied", "own"}) {
    EngineOptions o = options(SpeculationMethod::kTopK);
    o.plan.shape = TreeShape::branching(std::array{4, 2, 1});
    ModelFiles files = models(false);
    files.heads = open_medusa_heads(folder / ("medusa_" + kind + ".safetensors"), files.target);
    o.plan.draft = head_source(*files.heads, files.target);
    Engine engine(std::move(files), o);
    Session session = engine.open_session();
    Request r = request(prompt);
    r.max_new_tokens = static_cast<int>(expected.size());
    session.admit(r);
    std::vector<TokenId> text = prompt;
    int compared = 0;
    while (session.step()) {
      const CheckedTree& tree = session.last_sweep().trees.front();
      if (tree.tokens.size() > 1) {
        ASSERT_EQ(tree.tokens.front(), text.back());
        const auto& guesses = golden.at("guesses").at(kind).at(std::to_string(text.size()));
        std::vector<int> level(tree.tokens.size(), 0), rank(tree.tokens.size(), 0);
        for (std::size_t node = 1; node < tree.tokens.size(); ++node) {
          const auto parent = static_cast<std::size_t>(tree.parents[node]);
          level[node] = level[parent] + 1;
          rank[node] = tree.parents[node] == tree.parents[node - 1] ? rank[node - 1] + 1 : 0;
          const auto& guess = guesses.at(static_cast<std::size_t>(level[node] - 1));
          if (guess.is_null()) continue;
          EXPECT_EQ(tree.tokens[node], guess.at(static_cast<std::size_t>(rank[node])))
              << kind << " " << text.size() << " " << node;
          ++compared;
        }
      }
      for (std::size_t i = 1; i < tree.path.size(); ++i)
        text.push_back(tree.tokens[static_cast<std::size_t>(tree.path[i])]);
      text.push_back(tree.next);
    }
    text.resize(prompt.size() + expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), text.begin() + 12));
    EXPECT_GT(compared, 200) << kind;
  }
}

TEST_F(HeadsEngine, ShareSweepsStreamedAndKeepEachText) {
  EngineOptions o = options(SpeculationMethod::kTopK, 8, 4);
  o.plan.max_sequences = 3;
  o.plan.resident = 0;
  Engine engine = make_with_heads(o);
  expect_shared_sweeps_to_keep_texts(engine);
}

TEST_F(HeadsEngine, GoByWhatTheModelsHeadReadForTheLastNodeThatWasAccepted) {
  // Heads that add nothing guess once more the token that the model's own head chose: the root.
  write({.heads = kHeads, .bias = false, .deviation = 0.0f});
  Engine engine = make_with_heads(options(SpeculationMethod::kTopK, 10, 4));
  Session session = engine.open_session();
  session.admit(request(prompt(1)));
  int sweeps = 0;
  while (session.step()) {
    const CheckedTree& tree = session.last_sweep().trees.at(0);
    if (sweeps++ == 0) {
      EXPECT_EQ(tree.tokens.size(), 1u) << "nothing was read before";
      continue;
    }
    ASSERT_EQ(tree.tokens.size(), 10u);
    for (std::size_t node = 1; node < 10; ++node)
      if (tree.parents[node] != tree.parents[node - 1]) {
        EXPECT_EQ(tree.tokens[node], tree.tokens[0]);
      }
  }
  EXPECT_GT(sweeps, 3);
}

TEST_F(HeadsEngine, OfTheSmallModelGrowTheSameTreesForItsEnlargement) {
  const Checkpoint small = Checkpoint::open(kTarget);
  const auto silent = [](auto&&...) {};
  inflate(small, {.output = own_ / "large", .small = own_ / "small", .bytes = 2'000'000}, silent);
  const Checkpoint large = Checkpoint::open(own_ / "large");
  pack(large, own_ / "packed", 2, silent);
  const auto sweeps_of = [&](const std::filesystem::path& target) {
    ModelFiles files = models(false);
    files.target = Checkpoint::open(target);
    files.heads = open_medusa_heads(own_ / "heads.safetensors", files.target);
    EXPECT_EQ(files.heads->dim, 32);
    EngineOptions o = options(SpeculationMethod::kTopK, 14, 4);
    o.plan.draft = head_source(*files.heads, files.target);
    Engine engine(std::move(files), o);
    Session session = engine.open_session();
    session.admit(request(prompt(1)));
    std::vector<CheckedTree> sweeps;
    while (session.step()) sweeps.push_back(session.last_sweep().trees.front());
    return sweeps;
  };
  for (const int vocab : {0, 97}) {
    write({.heads = kHeads, .vocab = vocab, .source = source_fingerprint(small)});
    const std::vector<CheckedTree> of_small = sweeps_of(kTarget),
                                   of_large = sweeps_of(own_ / "large");
    ASSERT_EQ(of_small.size(), of_large.size());
    EXPECT_EQ(of_small.at(2).tokens.size(), 14u);
    for (std::size_t i = 0; i < of_small.size(); ++i) {
      EXPECT_EQ(of_small[i].tokens, of_large[i].tokens);
      EXPECT_EQ(of_small[i].path, of_large[i].path);
    }
    const std::string packed = error_of([&] { sweeps_of(own_ / "packed"); });
    if (vocab == 0)
      EXPECT_NE(packed.find("has it packed"), std::string::npos) << packed;
    else
      EXPECT_EQ(packed, "");
  }
}

TEST_F(HeadsEngine, AreInThePlanWithTheirBytesAndTheirAcceptance) {
  write({.heads = 2, .acceptance = {{0.6f, 0.2f, 0.1f}, {0.5f, 0.2f, 0.1f}}});
  Engine engine = make_with_heads(options(SpeculationMethod::kAuto));
  const Plan& plan = engine.plan();
  EXPECT_NE(plan.method, SpeculationMethod::kNone);
  EXPECT_EQ(plan.policy.drawing, Drawing::kTopK);
  EXPECT_EQ(plan.policy.shape.levels(), 3) << "there are two heads";
  EXPECT_NEAR(plan.acceptance.accept[0], 0.6, 1e-6);
  std::uint64_t weights = 0;
  for (const LedgerEntry& entry : plan.ledger)
    if (entry.what == "draft 2 heads: weights") weights = entry.bytes;
  // Two blocks with their biases, and the model's own head once more.
  EXPECT_EQ(weights, 2 * (32 * 32 * 4 + 256) + (97 * 32 * 2 + 192u));
  const std::vector<TokenId> p = prompt(2);
  EXPECT_EQ(engine.generate(request(p)).tokens,
            make(SpeculationMethod::kNone).generate(request(p)).tokens);
}

TEST_F(HeadsEngine, WhatTheyCannotDoIsRefused) {
  const auto error = [&](const EngineOptions& o) { return error_of([&] { make_with_heads(o); }); };
  EXPECT_NE(error(options(SpeculationMethod::kTopK, 20, 5)).find("there are 3 heads"),
            std::string::npos);
  EXPECT_NE(error(options(SpeculationMethod::kChain, 5)).find("there are 3 heads"),
            std::string::npos);
  EngineOptions deep = options(SpeculationMethod::kTopK);
  deep.plan.shape = TreeShape::chain(5);
  EXPECT_NE(error(deep).find("there are 3 heads"), std::string::npos);
  for (const SpeculationMethod method : {SpeculationMethod::kSequoia, SpeculationMethod::kGsd,
                                         SpeculationMethod::kBild, SpeculationMethod::kAdaptive})
    EXPECT_NE(error(options(method, 8)).find("heads have none"), std::string::npos) << name(method);
  EngineOptions lenient = options(SpeculationMethod::kTopK, 8);
  lenient.plan.lenience = 0.5;
  EXPECT_NE(error(lenient).find("lenience"), std::string::npos);
}

TEST_F(HeadsEngine, TypicalAcceptanceOfZeroKeepsAWholePathAStepAndSaysWhatItChanges) {
  EngineOptions o = options(SpeculationMethod::kTopK, 8, 4);
  o.plan.typical = InexactRule{InexactRule::Kind::kTypical, 0, 0};
  Engine engine = make_with_heads(o);
  ASSERT_TRUE(engine.plan().inexact);
  EXPECT_NE(in_words(*engine.plan().inexact).find("typical acceptance"), std::string::npos);
  EXPECT_NE(engine.notes().back().find("not exactly the model's"), std::string::npos);
  const std::vector<TokenId> p = prompt(0);
  const TextReport report = engine.generate(request(p));
  const auto levels = static_cast<std::size_t>(engine.plan().policy.shape.levels());
  for (std::size_t step = 1; step < report.step_tokens.size(); ++step)
    EXPECT_EQ(static_cast<std::size_t>(report.step_tokens[step]), levels);
}

}  // namespace
}  // namespace canopy
