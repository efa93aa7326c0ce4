#include "src/measure/hardware.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/convert/enlarge/random_checkpoint.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"
#include "tests/tiny_config.h"

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
  for (const Curve* curve : {&p.layers[0].attention, &p.layers[0].mlp, &p.head}) {
    EXPECT_GE(curve->knots().size(), 3u);
    EXPECT_GT(curve->at(1).count(), 0);
    EXPECT_GE(curve->at(64), curve->at(1));
  }
  ASSERT_TRUE(p.drafting.has_value());
  EXPECT_GT(p.drafting->level_sampled.at(1).count(), 0);
  EXPECT_GT(p.verify.count(), 0);
  for (const int rows : {1, 4, 16}) EXPECT_EQ(samples.times("at rest", rows).size(), 5u) << rows;
  EXPECT_GT(p.at_rest.at(1).count(), 0);
  for (const char* text : {"text at rest", "text of one row at rest"})
    EXPECT_EQ(samples.all(text).size(), 10u) << text << ": of none, and of a long one";
  EXPECT_TRUE(p.layers[0].context_at_rest.has_value());
  EXPECT_GT(said.size(), 5u);
  EXPECT_EQ(to_json(hardware_profile_from_json(to_json(p))), to_json(p));
}

TEST(Hardware, WithoutADraftItMeasuresPlainDecodingAlone) {
  MeasuredSamples samples;
  const HardwareProfile p =
      measure_hardware(tiny_models(false), in_memory(512 << 20), samples).profile;
  EXPECT_FALSE(p.drafting.has_value());
  EXPECT_TRUE(p.draft.empty());
  EXPECT_GT(p.layers[0].attention.at(1).count(), 0);
}

TEST(Hardware, ALimitOfTheLinkIsNotMeasured) {
  MeasuredSamples samples;
  EngineOptions options = in_memory(512 << 20);
  options.disk_limit = 1e5;
  const HardwareProfile p = measure_hardware(tiny_models(false), options, samples).profile;
  EXPECT_GT(p.link_bytes_per_second, 1e6);
}

TEST(Hardware, ALayerOfEachKindIsMeasured) {
  const TempDir dir;
  const ModelConfig config = unequal_config();
  MeasuredSamples samples;
  const ModelFiles files{
      write_random_checkpoint({config}, LayerBytes::kShared, dir.path() / "unequal"), std::nullopt,
      nullptr};
  const HardwareMeasurement done = measure_hardware(files, in_memory(512 << 20), samples);
  const auto& layers = done.profile.layers;
  ASSERT_EQ(layers.size(), config.layer_kinds.size());
  for (std::size_t kind = 0; kind < layers.size(); ++kind) {
    EXPECT_EQ(!layers[kind].attention.knots().empty(), config.layer_kinds[kind].attention) << kind;
    EXPECT_EQ(!layers[kind].mlp.knots().empty(), config.layer_kinds[kind].mlp) << kind;
  }
  EXPECT_EQ(samples.times("mlp", 1).size(), samples.times("mlp of kind 1", 1).size())
      << "each kind has one layer there";
  EXPECT_GT(samples.times("text of kind 4", 0).size(), 0u);
  EXPECT_EQ(samples.times("text of kind 3", 0).size(), 0u) << "it has no attention";
  // A plan made by it has the kind of each unit.
  EngineOptions options = in_memory(512 << 20);
  options.plan.method = SpeculationMethod::kNone;
  options.plan.max_prompt = 20;
  options.plan.context = 100;
  options.plan.cost = std::make_shared<const CostModel>(done.profile);
  const ModelSweeps sweeps = lay_out_models(files.target, std::nullopt);
  const Plan plan = make_plan(options.plan, sweeps, 0, [](const Workload&) { return 0u; });
  for (std::size_t i = 0; i < sweeps.target.units.size(); ++i)
    if (const Unit& unit = sweeps.target.units[i].unit; unit.kind != UnitKind::kHead) {
      EXPECT_EQ(plan.weights.units[i].layer_kind, config.kind(unit.layer)) << i;
    }
}

TEST(Hardware, ABudgetWithoutRoomForItIsRefusedWithTheLedger) {
  MeasuredSamples samples;
  const std::string why =
      error_of([&] { measure_hardware(tiny_models(true), in_memory(1 << 20), samples); });
  EXPECT_NE(why.find("too small"), std::string::npos) << why;
}

/// Rounds of a sweep of `rows` rows.
std::size_t rounds(const MeasuredSamples& samples, int rows) {
  return samples.times("arithmetic", rows).size();
}

TEST(Hardware, ABudgetWithRoomForAFewRowsIsMeasuredWithThose) {
  int narrow = 0;
  for (std::uint64_t memory = 32 << 20; memory < 512 << 20; memory += 1 << 18) {
    SCOPED_TRACE(memory);
    MeasuredSamples samples;
    HardwareMeasurement done;
    try {
      done = measure_hardware(tiny_models(true), in_memory(memory), samples, {.most_time = {}});
    } catch (const BudgetError&) {
      continue;
    }
    const HardwareProfile& profile = done.profile;
    EXPECT_GT(profile.layers[0].attention.at(1).count(), 0);
    EXPECT_TRUE(profile.drafting.has_value());
    EXPECT_EQ(samples.all("text of one row").size(), 2u);
    EXPECT_EQ(samples.all("draft text of one row").size(), 2u);
    const bool said = done.notes.back().find("there was room to time") == 0;
    EXPECT_EQ(said, samples.all("draft text").empty()) << done.notes.back();
    if (!said) break;  // there is room for many rows, too
    ++narrow;
  }
  EXPECT_GT(narrow, 0);
}

TEST(Hardware, WithoutTimeItMeasuresWhatIsNeededAloneAndSaysSo) {
  MeasuredSamples samples;
  const HardwareMeasurement done =
      measure_hardware(tiny_models(true), in_memory(512 << 20), samples, {.most_time = {}});
  EXPECT_EQ(rounds(samples, 2), 0u);
  EXPECT_GT(rounds(samples, 1), 0u);
  EXPECT_GT(done.profile.layers[0].attention.at(64).count(), 0);
  EXPECT_GT(done.profile.drafting->level_sampled.at(1).count(), 0);
  EXPECT_TRUE(samples.all("at rest").empty());
  EXPECT_TRUE(done.profile.at_rest.knots().empty());
  EXPECT_FALSE(done.profile.layers[0].context_at_rest.has_value());
  for (const char* part : {" s: reading the models ", " sweeps over 2 layers and the head, ",
                           " each, took ", ", the draft "})
    EXPECT_NE(done.notes.at(0).find(part), std::string::npos) << done.notes[0];
  EXPECT_NE(done.notes.at(1).find("where nothing is read"), std::string::npos) << done.notes[1];
}

TEST(Hardware, OneSizeBeyondTheFirstThatTakesLongerThanTheLinkIsNeededButNotOfTheDraft) {
  MeasuredSamples samples;
  samples.add("link", {1e15, Seconds(1)});
  samples.add("arithmetic", {1, Seconds(1e-9)});
  samples.add("arithmetic", {4, Seconds(1e-9)});
  samples.add("arithmetic", {16, Seconds(1e-3)});
  measure_hardware(tiny_models(true), in_memory(512 << 20), samples, {.most_time = {}});
  EXPECT_EQ(rounds(samples, 64), 1u);
  EXPECT_EQ(rounds(samples, 256), 0u);
  for (const char* level : {"level, greedy", "level, sampled"}) {
    EXPECT_GE(samples.times(level, 16).size(), 1u) << level;
    EXPECT_EQ(samples.times(level, 64).size(), 0u) << level;
  }
}

TEST(Hardware, WithTimeItMeasuresMoreSizesAndThrice) {
  MeasuredSamples samples;
  const HardwareMeasurement done = measure_hardware(
      tiny_models(true), in_memory(512 << 20), samples, {.most_time = std::chrono::minutes(10)});
  for (const int rows : {1, 2, 4, 8}) EXPECT_EQ(rounds(samples, rows), 3u) << rows;
  EXPECT_TRUE(done.notes.empty());
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
