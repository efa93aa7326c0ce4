// A draft of a test's own (tests/speculation/toy_draft.h) in an engine.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/tiny_engine.h"
#include "tests/speculation/toy_draft.h"

namespace canopy {
namespace {

class ToyDrafter : public TinyEngine {
 protected:
  static EngineOptions with_toy(EngineOptions options) {
    options.plan.draft = std::make_shared<testing::LooksBackSource>();
    return options;
  }
};

TEST_F(ToyDrafter, WritesPlainDecodingsTextInFewerSweeps) {
  Engine plain = make(SpeculationMethod::kNone);
  Engine engine(models(false), with_toy(options(SpeculationMethod::kChain, 6)));
  int steps = 0, tokens = 0;
  for (unsigned p = 0; p < 6; ++p)
    for (const float temperature : {0.0f, 1.0f}) {
      Request r = request(prompt(p));
      r.sampling.temperature = temperature;
      r.seed = 3;
      r.reproducible = true;
      const TextReport text = engine.generate(r);
      EXPECT_EQ(text.tokens, plain.generate(r).tokens) << p << " at " << temperature;
      steps += text.steps;
      tokens += static_cast<int>(text.tokens.size());
    }
  EXPECT_LT(steps, tokens);
}

TEST_F(ToyDrafter, IsChosenAndPricedByThePlannerAndChargedForItsMemory) {
  Engine engine(models(false), with_toy(options(SpeculationMethod::kAuto)));
  const Plan& plan = engine.plan();
  ASSERT_EQ(plan.method, SpeculationMethod::kChain) << "its second children are never right";
  EXPECT_NEAR(plan.acceptance.accept[0], 0.7, 1e-12);
  const int drafted = plan.prediction->best.shape.levels() - 1;
  EXPECT_NEAR(plan.prediction->best.cost.draft.count(), drafted * testing::LooksBackSource::kLevel,
              1e-9);
  const auto bytes = [&](const std::vector<LedgerEntry>& ledger, const std::string& what) {
    const auto line = std::find_if(ledger.begin(), ledger.end(),
                                   [&](const LedgerEntry& entry) { return entry.what == what; });
    return line == ledger.end() ? 0 : line->bytes;
  };
  EXPECT_EQ(bytes(plan.ledger, "draft look-back: what it might find"),
            testing::LooksBack::kHostBytes);
  EXPECT_EQ(bytes(plan.ledger, "draft look-back: a buffer"), testing::LooksBack::kDeviceBytes);

  PlanRequest on_gpu = with_toy(options(SpeculationMethod::kChain, 6)).plan;
  on_gpu.memory = on_gpu.device_memory.emplace(1u << 30);
  const ModelFiles files = models(false);
  const ModelSweeps sweeps = lay_out_models(files.target, std::nullopt);
  const Plan there = make_plan(on_gpu, sweeps, 0, [](const Workload&) { return std::size_t{0}; });
  EXPECT_EQ(bytes(there.ledger, "draft look-back: what it might find"),
            testing::LooksBack::kHostBytes);
  EXPECT_GE(bytes(there.device->ledger, "draft look-back: a buffer"),
            testing::LooksBack::kDeviceBytes);
}

}  // namespace
}  // namespace canopy
