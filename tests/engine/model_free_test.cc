// Drafts without a model, in an engine: the text is the target's own.
#include <gtest/gtest.h>

#include "src/speculation/drafters/model_free_drafter.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

class ModelFreeEngine : public TinyEngine, public ::testing::WithParamInterface<const char*> {
 protected:
  static EngineOptions options_of(SpeculationMethod method, int tree = 0, int levels = 0) {
    EngineOptions o = options(method, tree, levels);
    o.plan.draft = draft_source_named(GetParam());
    return o;
  }
};

TEST_P(ModelFreeEngine, WritesPlainDecodingsText) {
  Engine plain = make(SpeculationMethod::kNone);
  Engine chain(models(false), options_of(SpeculationMethod::kChain, 6));
  Engine tree(models(false), options_of(SpeculationMethod::kTopK, 12, 4));
  for (unsigned p = 0; p < 4; ++p)
    for (const float temperature : {0.0f, 1.0f}) {
      Request r = request(prompt(p));
      r.sampling.temperature = temperature;
      r.seed = 3;
      r.reproducible = true;
      const std::vector<TokenId> text = plain.generate(r).tokens;
      for (Engine* engine : {&chain, &tree}) {
        const TextReport report = engine->generate(r);
        EXPECT_EQ(report.tokens, text) << p << " at " << temperature;
        EXPECT_LE(report.steps, std::ssize(text));
      }
    }
}

TEST_P(ModelFreeEngine, SharesSweepsAndKeepsEachText) {
  EngineOptions o = options_of(SpeculationMethod::kTopK, 8, 4);
  o.plan.max_sequences = 3;
  Engine engine(models(false), o);
  expect_shared_sweeps_to_keep_texts(engine);
}

TEST_P(ModelFreeEngine, IsPlannedWithoutADraftModelsMemory) {
  EngineOptions chosen = options_of(SpeculationMethod::kAuto);
  Engine engine(models(false), chosen);
  const Plan& plan = engine.plan();
  EXPECT_EQ(plan.policy.drawing, Drawing::kTopK);
  ASSERT_TRUE(plan.prediction);
  EXPECT_EQ(plan.prediction->best.cost.draft, Seconds(0));
  std::uint64_t found = 0;
  for (const LedgerEntry& entry : plan.ledger)
    if (entry.what.find("draft") != std::string::npos) {
      EXPECT_NE(entry.what.find(GetParam()), std::string::npos) << entry.what;
      found += entry.bytes;
    }
  if (plan.method == SpeculationMethod::kNone) return;  // it does not pay
  const int vocab = engine.models().target.config().vocab;
  EXPECT_EQ(found,
            ModelFreeDrafter::host_bytes(*model_free_draft_named(GetParam()), vocab, plan.slots));
}

INSTANTIATE_TEST_SUITE_P(Drafts, ModelFreeEngine,
                         ::testing::Values("copy:1", "ngram:1", "ngram:2", "random"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, ':');
                           return name;
                         });

using ModelFreePlan = TinyEngine;

TEST_F(ModelFreePlan, CopiesAWholeChainAStepFromACorpusThatHasTheText) {
  const Request r = request(prompt(1));
  std::vector<TokenId> corpus = r.prompt;
  const std::vector<TokenId> text = make(SpeculationMethod::kNone).generate(r).tokens;
  corpus.insert(corpus.end(), text.begin(), text.end());
  EngineOptions o = options(SpeculationMethod::kChain, 8);
  o.plan.draft = draft_source_named("copy")->with_corpus(corpus);
  const TextReport report = Engine(models(false), o).generate(r);
  EXPECT_EQ(report.tokens, text);
  EXPECT_EQ(report.steps, kNew / 8);
}

TEST_F(ModelFreePlan, RefusesMethodsThatDrawFromAModel) {
  for (const SpeculationMethod method : {SpeculationMethod::kSequoia, SpeculationMethod::kSpecInfer,
                                         SpeculationMethod::kSpecTr, SpeculationMethod::kNaive}) {
    EngineOptions o = options(method, 6, 3);
    o.plan.shape = TreeShape::chain(3);
    o.plan.draft = draft_source_named("copy");
    EXPECT_THROW(Engine(models(false), o), Error) << name(method);
  }
}

TEST_F(ModelFreePlan, FollowsWhatATextTeaches) {
  EngineOptions o = options(SpeculationMethod::kAuto);
  o.plan.draft = draft_source_named("copy");
  o.plan.acceptance = Acceptance{{0.6, 0.1}, {{0.8, 0.1}}};
  o.plan.context = 300;
  Engine engine(models(false), o), plain = make(SpeculationMethod::kNone);
  ASSERT_TRUE(engine.plan().adaptive);
  Request r = request(prompt(2));
  EXPECT_EQ(engine.generate(r).tokens, plain.generate(r).tokens);
}

}  // namespace
}  // namespace canopy
