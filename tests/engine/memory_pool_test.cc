// Weights give way to texts and come back: the texts are the same, and the pool is never overdrawn.
#include "tests/engine/memory_pool_kit.h"

namespace canopy {
namespace {

TEST_F(MemoryPoolTest, WeightsFillWhatExpectedTextsLeave) {
  const Engine engine = make(SpeculationMethod::kNone);
  const Plan& plan = engine.plan();
  ASSERT_GT(plan.pool_bytes, 0u);
  EXPECT_GT(plan.resident_bytes, 2 * plan.full_resident_bytes);
  EXPECT_LT(plan.sweep_bytes, plan.full_sweep_bytes);
  EXPECT_LE(plan.total(), plan.memory);
  EXPECT_EQ(engine.pool().bytes, plan.pool_bytes);
  EXPECT_EQ(engine.pool().resident, plan.resident_bytes);
  EXPECT_EQ(plan.resident_bytes, plan.weights.resident_bytes);
  EXPECT_EQ(plan.full_resident_bytes, plan.weights.when_full().resident_bytes);
  EXPECT_EQ(plan.full_sweep_bytes, plan.weights.when_full().sweep_bytes());
  expect_in_budget(engine);
}

TEST_F(MemoryPoolTest, WhatTheUserFixedStays) {
  const Engine engine = make(SpeculationMethod::kNone, 1 << 16);
  EXPECT_EQ(engine.plan().pool_bytes, 0u);
  EXPECT_EQ(engine.pool().bytes, 0u);
}

TEST_F(MemoryPoolTest, AFullHouseOfFullTextsEndsAndWeightsComeBack) {
  for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia}) {
    SCOPED_TRACE(name(method));
    Engine engine = make(method);
    run_full_house(engine, kContext, 40);
  }
}

TEST_F(MemoryPoolTest, ExpertsFillWhatExpectedTextsLeave) {
  const Engine engine = make(SpeculationMethod::kNone, std::nullopt, true);
  const Plan& plan = engine.plan();
  ASSERT_GT(plan.pool_bytes, 0u);
  EXPECT_GT(plan.expert_slots, plan.full_expert_slots);
  EXPECT_GE(plan.most_expert_slots, plan.expert_slots);
  EXPECT_GT(plan.resident_bytes, plan.full_resident_bytes);
  EXPECT_LE(plan.total(), plan.memory);
  EXPECT_EQ(engine.pool().resident, plan.resident_bytes);
  EXPECT_EQ(plan.resident_bytes, plan.weights.resident_bytes);
  const WeightPlan full = plan.weights.when_full();
  EXPECT_EQ(plan.full_resident_bytes, full.resident_bytes);
  EXPECT_LT(full.experts.stay, plan.weights.experts.stay);
  expect_in_budget(engine);
  EXPECT_EQ(
      make(SpeculationMethod::kNone, plan.full_resident_bytes * 9 / 10, true).plan().pool_bytes,
      0u);
}

TEST_F(MemoryPoolTest, TextsAreTheSameWhateverComesAndGoes) { run_texts(false, 300); }
TEST_F(MemoryPoolTest, TextsOfMixturesAreTheSameWhateverComesAndGoes) { run_texts(true, 300); }

}  // namespace
}  // namespace canopy
