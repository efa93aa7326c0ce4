// Trees that the draft's own rows end, and rules that are not exact, in an engine.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/engine/runtime.h"
#include "tests/engine/tiny_engine.h"

namespace canopy {
namespace {

using Growths = TinyEngine;

/// A machine on which drafting is dear, so that the bound of an adaptive chain is above 0.
std::shared_ptr<const CostModel> dear_drafts() {
  HardwareProfile p = testing::made_up_profile();
  p.link_bytes_per_second = 1e9;
  p.attention = p.mlp = testing::line(1e-3, 3e-6);
  p.head = testing::line(3e-3, 1e-5);
  p.drafting = {testing::line(5e-3, 1e-6), testing::line(5e-3, 1e-6), Seconds(0)};
  return std::make_shared<const CostModel>(p);
}

TEST_F(Growths, AnAdaptiveChainWritesPlainDecodingsText) {
  Engine plain = make(SpeculationMethod::kNone);
  EngineOptions o = options(SpeculationMethod::kAdaptive, 8);
  o.plan.cost = dear_drafts();
  Engine engine(models(true), o);
  EXPECT_GT(engine.plan().policy.growth.bound, 0.05);
  EXPECT_FALSE(engine.plan().adaptive);
  for (unsigned p = 0; p < 8; ++p)
    for (const float temperature : {0.0f, 1.0f}) {
      Request r = request(prompt(p));
      r.sampling.temperature = temperature;
      r.reproducible = true;
      r.seed = p;
      EXPECT_EQ(engine.generate(r).tokens, plain.generate(r).tokens) << p << " at " << temperature;
    }
}

TEST_F(Growths, AnAdaptiveChainDraftsLessWhereDraftsAreDear) {
  EngineOptions o = options(SpeculationMethod::kAdaptive, 8);
  const auto nodes = [&](const std::shared_ptr<const CostModel>& cost, double bound) {
    o.plan.cost = cost;
    Engine engine(models(true), o);
    Session session(engine.runtime());
    session.admit(request(prompt(1)));
    int nodes = 0, sweeps = 0;
    for (; session.step(); ++sweeps)
      for (const CheckedTree& tree : session.last_sweep().trees)
        nodes += static_cast<int>(tree.tokens.size());
    EXPECT_GE(engine.plan().policy.growth.bound, bound);
    return static_cast<double>(nodes) / sweeps;
  };
  const double dear = nodes(dear_drafts(), 0.05), cheap = nodes(made_up_cost(), 0);
  EXPECT_LT(dear, cheap);
  EXPECT_LE(cheap, 8);
}

TEST_F(Growths, AnAdaptiveChainThatIsNotGivenALengthMayBeLongerThanAFixedOne) {
  const Engine fixed = make(SpeculationMethod::kChain),
               adaptive = make(SpeculationMethod::kAdaptive);
  EXPECT_GT(adaptive.plan().policy.shape.size(), fixed.plan().policy.shape.size());
  EXPECT_EQ(adaptive.plan().policy.shape.levels(), adaptive.plan().policy.shape.size());
}

TEST_F(Growths, AdaptiveChainsShareSweepsAndKeepEachText) {
  EngineOptions o = options(SpeculationMethod::kAdaptive, 6);
  o.plan.cost = dear_drafts();
  o.plan.max_sequences = 3;
  Engine engine(models(true), o), plain = make(SpeculationMethod::kNone);
  std::vector<Request> requests;
  for (unsigned p = 0; p < 7; ++p) requests.push_back(request(prompt(p, 5 + static_cast<int>(p))));
  const BatchReport report = engine.generate(requests);
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(report.texts[i].tokens, plain.generate(requests[i]).tokens) << i;
}

TEST_F(Growths, PenaltiesReachAnAdaptiveChain) {
  EngineOptions o = options(SpeculationMethod::kAdaptive, 6);
  Engine engine(models(true), o), plain = make(SpeculationMethod::kNone);
  Request r = request(prompt(4));
  r.edits.repetition = 1.3f;
  r.edits.presence = 0.5f;
  EXPECT_EQ(engine.generate(r).tokens, plain.generate(r).tokens);
}

TEST_F(Growths, LenienceIsLabelledAndSavesSweeps) {
  for (const double temperature : {0.0, 1.0}) {
    EngineOptions o = options(SpeculationMethod::kSequoia, 12, 4, temperature);
    o.plan.lenience = 0.1;
    Engine lenient(models(true), o);
    ASSERT_TRUE(lenient.plan().inexact);
    EXPECT_EQ(lenient.plan().inexact->threshold, 0.1);
    EXPECT_TRUE(std::any_of(lenient.notes().begin(), lenient.notes().end(), [](const auto& note) {
      return note.find("not exactly the model's") != std::string::npos;
    }));
    o.plan.lenience = 1;
    Engine strict(models(true), o);
    EXPECT_FALSE(strict.plan().inexact);
    int lenient_steps = 0, strict_steps = 0;
    for (unsigned p = 0; p < 6; ++p) {
      Request r = request(prompt(p));
      r.sampling.temperature = static_cast<float>(temperature);
      r.seed = p;
      lenient_steps += lenient.generate(r).steps;
      strict_steps += strict.generate(r).steps;
    }
    EXPECT_LT(lenient_steps, strict_steps) << temperature;
  }
}

TEST_F(Growths, LenienceOfZeroKeepsEveryDraftedToken) {
  EngineOptions o = options(SpeculationMethod::kChain, 5);
  o.plan.lenience = 0;
  const TextReport text = Engine(models(true), o).generate(request(prompt(1)));
  EXPECT_EQ(text.steps, kNew / 5);
}

TEST_F(Growths, LenienceIsRefusedBesideOtherRules) {
  for (const SpeculationMethod method :
       {SpeculationMethod::kTopK, SpeculationMethod::kNaive, SpeculationMethod::kSpecTr}) {
    EngineOptions o = options(method, 6, 3);
    o.plan.shape = TreeShape::chain(3);
    o.plan.lenience = 0.5;
    EXPECT_THROW(Engine(models(true), o), Error);
  }
}

}  // namespace
}  // namespace canopy
