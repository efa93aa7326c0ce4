#include "src/measure/hardware.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/error.h"
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
  MeasuredSamples samples;
  const HardwareProfile p =
      measure_hardware(tiny_models(true), in_memory(512 << 20), samples,
                       {.on_measure = [&](std::string_view what) { said.emplace_back(what); }})
          .profile;
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
  MeasuredSamples samples;
  const HardwareProfile p =
      measure_hardware(tiny_models(false), in_memory(512 << 20), samples).profile;
  EXPECT_FALSE(p.drafting.has_value());
  EXPECT_TRUE(p.draft.empty());
  EXPECT_GT(p.attention.at(1).count(), 0);
}

TEST(Hardware, ABudgetWithoutRoomForItIsRefusedWithTheLedger) {
  MeasuredSamples samples;
  const std::string why =
      error_of([&] { measure_hardware(tiny_models(true), in_memory(1 << 20), samples); });
  EXPECT_NE(why.find("too small"), std::string::npos) << why;
}

/// Rounds of a sweep of so many rows.
std::size_t rounds(const MeasuredSamples& samples, int rows) {
  return samples.times("arithmetic", rows).size();
}

TEST(Hardware, WithoutTimeItMeasuresWhatIsNeededAloneAndSaysWhereTheTimeWent) {
  MeasuredSamples samples;
  const HardwareMeasurement done =
      measure_hardware(tiny_models(true), in_memory(512 << 20), samples, {.most_time = {}});
  EXPECT_EQ(rounds(samples, 2), 0u);
  EXPECT_GT(rounds(samples, 1), 0u);
  EXPECT_GT(done.profile.attention.at(64).count(), 0);
  EXPECT_GT(done.profile.drafting->level_sampled.at(1).count(), 0);
  for (const char* part : {" s: reading the models ", " sweeps over 2 layers and the head, ",
                           " each, took ", ", the draft "})
    EXPECT_NE(done.why_long.find(part), std::string::npos) << done.why_long;
}

TEST(Hardware, WithTimeItMeasuresMoreSizesAndThrice) {
  MeasuredSamples samples;
  const HardwareMeasurement done = measure_hardware(
      tiny_models(true), in_memory(512 << 20), samples, {.most_time = std::chrono::minutes(10)});
  for (const int rows : {1, 2, 4, 8}) EXPECT_EQ(rounds(samples, rows), 3u) << rows;
  EXPECT_EQ(done.why_long, "");
}

TEST(Hardware, AStopRequestEndsItBeforeTheNextStepAndItGoesOnFromThere) {
  const ModelFiles models = tiny_models(true);
  for (std::size_t cut = 1; cut < 12; cut += 3) {
    SCOPED_TRACE(cut);
    MeasuredSamples samples;
    std::stop_source stop;
    std::vector<std::string> said;
    EXPECT_THROW(measure_hardware(models, in_memory(512 << 20), samples,
                                  {.on_measure =
                                       [&](std::string_view what) {
                                         said.emplace_back(what);
                                         if (said.size() == cut) stop.request_stop();
                                       }},
                                  stop.get_token()),
                 Stopped);
    EXPECT_EQ(said.size(), cut);
    const std::string before = samples.to_json("");
    MeasuredSamples later = MeasuredSamples::from_json(before, "");
    measure_hardware(models, in_memory(512 << 20), later, {.most_time = {}});
    for (const char* name : {"link", "arithmetic", "attention", "level, greedy", "verify"}) {
      const auto old = samples.all(name), now = later.all(name);
      ASSERT_GE(now.size(), old.size());
      for (std::size_t i = 0; i < old.size(); ++i) EXPECT_EQ(old[i].t, now[i].t) << name;
    }
    EXPECT_EQ(later.all("link").size(), 1u);
    for (const Sample& sample : samples.all("arithmetic"))
      EXPECT_LE(rounds(later, static_cast<int>(sample.x)), 2u) << "2: where one was disturbed";
  }
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
