// Weights on a device with memory of its own give way to its KV caches and come back.
#include "tests/engine/memory_pool_kit.h"
#include "tests/kernels/emulated_cuda.h"

namespace canopy {
namespace {

class DevicePool : public MemoryPoolTest {
 protected:
  static constexpr int kShort = 200;  // tokens of the longest text
  static constexpr std::uint64_t kPlenty = std::uint64_t{1} << 32;

  static ModelFiles small_files(bool with_draft, bool experts = false) {
    return files(with_draft, experts, 8, 1);
  }
  static EngineOptions asked_on(SpeculationMethod method, std::size_t gpu_memory,
                                EmulatedCuda** device = nullptr) {
    static const auto cost = std::make_shared<const CostModel>([] {
      HardwareProfile p = made_up_cost()->profile();
      p.upload_bytes_per_second = 2e8;  // so that remembered texts are soon worth less than weights
      return p;
    }());
    EngineOptions o = asked(method, kPlenty);
    o.plan.cost = cost;
    o.plan.context = kShort;
    o.plan.max_prompt = kShort - 1;
    o.plan.priced_text = kKvBlock / 2;
    if (method != SpeculationMethod::kNone) o.plan.tree_size = 6, o.plan.tree_levels = 2;
    o.make_device = [=]() -> std::unique_ptr<Device> {
      auto made = std::make_unique<EmulatedCuda>(EmulatedCuda::Options{.memory = gpu_memory});
      if (device) *device = made.get();
      return made;
    };
    return o;
  }
  /// Bytes of a GPU with room for about a quarter of the target's weights, half of a mixture's, all
  /// KV blocks being in use.
  static std::size_t tight(SpeculationMethod method, bool experts = false) {
    const bool drafts = method != SpeculationMethod::kNone;
    const Engine all(small_files(drafts, experts), asked_on(method, kPlenty));
    std::size_t bytes = 0;
    for (const LedgerEntry& entry : all.plan().device->ledger)
      bytes +=
          entry.what.starts_with("target weights") ? entry.bytes / (experts ? 2 : 4) : entry.bytes;
    if (experts) return bytes;
    const SweepLayout sweep = lay_out_sweep(small_files(false).target);
    return bytes + least_device_ring(sweep, none_resident(sweep));
  }
  static Engine make_on(SpeculationMethod method, EmulatedCuda** device = nullptr,
                        bool experts = false) {
    return Engine(small_files(method != SpeculationMethod::kNone, experts),
                  asked_on(method, tight(method, experts), device));
  }
};

TEST_F(DevicePool, WeightsFillWhatExpectedTextsLeave) {
  for (const SpeculationMethod method : {SpeculationMethod::kNone, SpeculationMethod::kSequoia}) {
    SCOPED_TRACE(name(method));
    EmulatedCuda* device = nullptr;
    Engine engine = make_on(method, &device);
    const Plan& plan = engine.plan();
    ASSERT_GT(plan.pool_bytes, 0u);
    EXPECT_GT(plan.resident_bytes, plan.full_resident_bytes);
    EXPECT_LT(plan.device->upload_bytes, plan.full_sweep_bytes);
    EXPECT_EQ(plan.device->host_bytes, plan.full_sweep_bytes) << "the host has all that travels";
    EXPECT_LE(plan.device->total(), plan.device->memory);
    EXPECT_EQ(plan.full_sweep_bytes, plan.weights.when_full().sweep_bytes());
    EXPECT_EQ(plan.full_resident_bytes, plan.weights.when_full().resident_bytes);
    EXPECT_EQ(engine.pool().bytes, plan.pool_bytes);
    EXPECT_EQ(engine.pool().resident, plan.full_resident_bytes) << "nothing has travelled yet";
    const TextReport first = engine.generate(greedy(text(1, 10), 20));
    EXPECT_EQ(first.tokens.size(), 20u);
    EXPECT_GE(engine.pool().resident + largest_unit(engine), plan.resident_bytes);
    EXPECT_GT(engine.pool().returned, 0u);
    expect_in_budget(engine);
    EXPECT_LE(device->card().most_held(), plan.device->total());
  }
}

TEST_F(DevicePool, AFullHouseOfFullTextsEndsAndWeightsComeBack) {
  EmulatedCuda* device = nullptr;
  Engine engine = make_on(SpeculationMethod::kNone, &device);
  engine.generate(greedy(text(9, 10), 4));
  EXPECT_GE(run_full_house(engine, kShort, 20), engine.plan().full_resident_bytes);
  EXPECT_LE(device->card().most_held(), engine.plan().device->total());
}

TEST_F(DevicePool, TextsAreTheSameWhateverComesAndGoes) {
  Engine resident(small_files(false), asked_on(SpeculationMethod::kNone, kPlenty));
  run_texts(resident, kShort - 40, 14, [](SpeculationMethod method) { return make_on(method); });
}

TEST_F(DevicePool, ExpertsFillWhatExpectedTextsLeave) {
  EmulatedCuda* device = nullptr;
  Engine engine = make_on(SpeculationMethod::kNone, &device, true);
  const Plan& plan = engine.plan();
  ASSERT_GT(plan.pool_bytes, 0u);
  EXPECT_GT(plan.expert_slots, plan.full_expert_slots);
  EXPECT_GE(plan.most_expert_slots, plan.expert_slots);
  const WeightPlan full = plan.weights.when_full();
  EXPECT_LT(full.experts.stay, plan.weights.experts.stay);
  EXPECT_EQ(plan.full_resident_bytes, full.resident_bytes);
  EXPECT_EQ(engine.pool().resident, plan.full_resident_bytes) << "no sweep has begun";
  engine.generate(greedy(text(1, 10), 8));
  EXPECT_GE(engine.pool().resident, plan.resident_bytes);
  expect_in_budget(engine);
  EXPECT_LE(device->card().most_held(), plan.device->total());
}

TEST_F(DevicePool, TextsOfMixturesAreTheSameWhateverComesAndGoes) {
  Engine resident(small_files(false, true), asked_on(SpeculationMethod::kNone, kPlenty));
  run_texts(resident, kShort - 40, 20,
            [](SpeculationMethod method) { return make_on(method, nullptr, true); });
}

TEST_F(DevicePool, WhatTheUserFixedStaysAndSoDoesWhatTheHostReadsFromDisk) {
  const std::size_t memory = tight(SpeculationMethod::kNone);
  EngineOptions fixed = asked_on(SpeculationMethod::kNone, memory);
  fixed.plan.resident = 1 << 16;
  EXPECT_EQ(Engine(small_files(false), fixed).plan().pool_bytes, 0u);
  EngineOptions disk = asked_on(SpeculationMethod::kNone, memory);
  disk.plan.from_disk = true;
  EXPECT_EQ(Engine(small_files(false), disk).plan().pool_bytes, 0u);
}

}  // namespace
}  // namespace canopy
