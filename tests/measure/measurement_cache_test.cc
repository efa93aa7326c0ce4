// Profiles in the user's cache, whole and cut.
#include "src/measure/measurement_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "src/base/error.h"
#include "tests/temp_dir.h"
#include "tests/test_data.h"

namespace canopy {
namespace {

class KeptProfile : public ::testing::Test {
 protected:
  KeptProfile() {
    setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    options_.device.threads = 1;
    options_.plan.memory = 512u << 20;
    models_.draft = models_.target;
  }

  /// The notes; stopped where that step is about to be measured.
  std::string find(const std::string& until = "") {
    std::string notes;
    std::stop_source stop;
    steps_.clear();
    try {
      find_profile(models_, options_,
                   {[&](const std::string& note) { notes += note + "\n"; },
                    [&](std::string_view what) {
                      steps_.emplace_back(what);
                      if (what == until) stop.request_stop();
                    }},
                   stop.get_token());
      stopped_ = false;
    } catch (const Stopped&) {
      stopped_ = true;
    }
    return notes;
  }
  std::filesystem::path whole() const { return profile_file(models_, options_); }
  std::filesystem::path cut() const { return whole().replace_extension(".cut"); }

  TempDir cache_;
  ModelFiles models_{Checkpoint::open(test_data() / "model" / "llama2"), std::nullopt, nullptr};
  EngineOptions options_;
  std::vector<std::string> steps_;
  bool stopped_ = false;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(KeptProfile, ACutMeasurementIsKeptAndTheNextGoesOnFromThere) {
  std::string notes = find("verification");
  EXPECT_TRUE(stopped_);
  EXPECT_TRUE(has(notes, "have not run on this machine before")) << notes;
  EXPECT_TRUE(has(notes, "was cut: the next run goes on from there")) << notes;
  EXPECT_FALSE(std::filesystem::exists(whole()));
  ASSERT_TRUE(std::filesystem::exists(cut()));

  notes = find();
  EXPECT_FALSE(stopped_);
  EXPECT_TRUE(has(notes, "was cut before: it goes on from there")) << notes;
  EXPECT_TRUE(has(notes, "measured, and kept in " + whole().string())) << notes;
  EXPECT_EQ(steps_.at(2), "verification") << "after the models and the link";
  EXPECT_FALSE(std::filesystem::exists(cut()));

  EXPECT_EQ(find(), "");
  EXPECT_TRUE(steps_.empty());
}

TEST_F(KeptProfile, ADamagedCutMeasurementIsNamedAndBegunAnew) {
  std::filesystem::create_directories(cut().parent_path());
  std::ofstream(cut()) << "{\"canopy_measurement\": 1";
  const std::string notes = find();
  EXPECT_TRUE(has(notes, cut().string() + ": ")) << notes;
  EXPECT_TRUE(has(notes, "measured, and kept in")) << notes;
  EXPECT_FALSE(std::filesystem::exists(cut()));
}

TEST_F(KeptProfile, ACutMeasurementThatCannotBeUsedIsForgotten) {
  std::filesystem::create_directories(cut().parent_path());
  MeasuredSamples samples;  // all of no text and none after one: no measurement has that
  for (int round = 0; round < 3; ++round) samples.add("text of one row", {0, Seconds(1e-6)});
  std::ofstream(cut()) << samples.to_json(measured_code());
  EXPECT_THROW(find(), Error);
  EXPECT_FALSE(std::filesystem::exists(cut()));
  EXPECT_TRUE(has(find(), "measured, and kept in"));
}

TEST_F(KeptProfile, WhatOtherCodeMeasuredIsBegunAnew) {
  std::filesystem::create_directories(cut().parent_path());
  MeasuredSamples samples;
  samples.add("link", {1, Seconds(1)});
  std::ofstream(cut()) << samples.to_json("of another build");
  EXPECT_FALSE(has(find(), "goes on from there"));
  EXPECT_TRUE(std::filesystem::exists(whole()));
}

}  // namespace
}  // namespace canopy
