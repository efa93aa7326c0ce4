#include "src/measure/hardware.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/error_of.h"

namespace canopy {
namespace {

const std::filesystem::path kTiny = std::filesystem::path(CANOPY_TEST_DATA) / "model/llama2";

ModelFiles tiny_models(bool with_draft) {
  ModelFiles files{Checkpoint::open(kTiny), std::nullopt, nullptr};
  if (with_draft) files.draft = Checkpoint::open(kTiny);
  return files;
}

EngineOptions in_memory(std::uint64_t bytes) {
  EngineOptions options;
  options.device.threads = 1;
  options.plan.memory = bytes;
  return options;
}

TEST(Hardware, MeasuresEveryPartOfAStepAndSaysWhat) {
  std::vector<std::string> said;
  const HardwareProfile p =
      measure_hardware(tiny_models(true), in_memory(512 << 20),
                       [&](std::string_view what) { said.emplace_back(what); });
  EXPECT_GT(p.link_bytes_per_second, 0);
  for (const Curve* curve : {&p.attention, &p.mlp, &p.head}) {
    EXPECT_GE(curve->knots().size(), 3u);
    EXPECT_GT(curve->at(1).count(), 0);
    EXPECT_GE(curve->at(64), curve->at(1));
  }
  ASSERT_TRUE(p.drafting.has_value());
  EXPECT_GT(p.drafting->level_sampled.at(1).count(), 0);
  EXPECT_GT(p.verify.count(), 0);
  EXPECT_GT(said.size(), 5u);
  EXPECT_EQ(to_json(hardware_profile_from_json(to_json(p))), to_json(p));
}

TEST(Hardware, WithoutADraftItMeasuresPlainDecodingAlone) {
  const HardwareProfile p = measure_hardware(tiny_models(false), in_memory(512 << 20));
  EXPECT_FALSE(p.drafting.has_value());
  EXPECT_TRUE(p.draft.empty());
  EXPECT_GT(p.attention.at(1).count(), 0);
}

TEST(Hardware, ABudgetWithoutRoomForItIsRefusedWithTheLedger) {
  const std::string why = error_of([] { measure_hardware(tiny_models(true), in_memory(1 << 20)); });
  EXPECT_NE(why.find("too small"), std::string::npos) << why;
}

TEST(Hardware, AProfileIsKeptUnderItsModelsAndItsMachine) {
  const EngineOptions one = in_memory(1), other = [] {
    EngineOptions o;
    o.device.threads = 2;
    return o;
  }();
  const auto file = profile_file(tiny_models(true), one);
  EXPECT_EQ(file, profile_file(tiny_models(true), one));
  EXPECT_NE(file, profile_file(tiny_models(false), one));
  EXPECT_NE(file, profile_file(tiny_models(true), other));
}

}  // namespace
}  // namespace canopy
