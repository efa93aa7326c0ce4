#include "planner/acceptance_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/error_of.h"

namespace canopy {
namespace {

using nlohmann::json;

MeasuredAcceptance sample() {
  MeasuredAcceptance m;
  m.target = "0123456789abcdef";
  m.draft = "fedcba9876543210";
  m.target_name = "big \"model\"";
  m.draft_name = "small";
  m.sampling = {0.6f, 40, 0.9f};
  m.drawing = "sequoia";
  m.acceptance.accept = {0.7562641, 1.0 / 3 / 7, 0.0};
  m.standard_error = {0.01, 1e-9, 0.0};
  m.positions = 25600;
  m.examples = 200;
  m.texts = 40;
  m.prompts = "the default set";
  m.date = "2026-11-21";
  m.version = "0.1.0";
  return m;
}

TEST(AcceptanceFile, ComesBackAsItWasWritten) {
  const MeasuredAcceptance out = sample(), in = acceptance_from_json(to_json(out));
  EXPECT_EQ(in.target, out.target);
  EXPECT_EQ(in.draft, out.draft);
  EXPECT_EQ(in.target_name, out.target_name);
  EXPECT_EQ(in.sampling.temperature, out.sampling.temperature);
  EXPECT_EQ(in.sampling.top_k, out.sampling.top_k);
  EXPECT_EQ(in.sampling.top_p, out.sampling.top_p);
  EXPECT_EQ(in.drawing, out.drawing);
  EXPECT_EQ(in.acceptance.accept, out.acceptance.accept);
  EXPECT_EQ(in.standard_error, out.standard_error);
  EXPECT_EQ(in.positions, out.positions);
  EXPECT_EQ(in.examples, out.examples);
  EXPECT_EQ(in.texts, out.texts);
  EXPECT_EQ(to_json(in), to_json(out));
}

TEST(AcceptanceFile, KeepsMinPAndTypicalPWhereTheyCut) {
  EXPECT_EQ(to_json(sample()).find("min_p"), std::string::npos);
  EXPECT_EQ(acceptance_from_json(to_json(sample())).sampling, sample().sampling);
  MeasuredAcceptance cut = sample();
  cut.sampling.min_p = 0.05f;
  cut.sampling.typical_p = 0.9f;
  EXPECT_EQ(acceptance_from_json(to_json(cut)).sampling, cut.sampling);
}

TEST(AcceptanceFile, SpellsATemperatureAsTheUserDid) {
  EXPECT_EQ(json::parse(to_json(sample()))["temperature"].dump(), "0.6");
}

TEST(AcceptanceFile, HasANameForEachPairAndSampling) {
  EXPECT_EQ(acceptance_file_name("aa", "bb", {}), "acceptance-aa-bb-t0.json");
  EXPECT_EQ(acceptance_file_name("aa", "bb", {0.6f, 40, 0.9f}),
            "acceptance-aa-bb-t0.6-k40-p0.9.json");
  EXPECT_EQ(acceptance_file_name("aa", "bb", {1.0f, 0, 1.0f, 0.05f, 0.9f}),
            "acceptance-aa-bb-t1-m0.05-y0.9.json");
}

TEST(AcceptanceFile, SaysWhatIsWrongWithAFile) {
  const auto error_with = [](const auto& edit) {
    json object = json::parse(to_json(sample()));
    edit(object);
    return error_of([&] { acceptance_from_json(object.dump()); });
  };
  const auto set = [&](const char* key, json value) {
    return error_with([&](json& object) { object[key] = value; });
  };
  EXPECT_EQ(error_with([](json&) {}), "");
  const json good = json::parse(to_json(sample()));
  for (const auto& [key, value] : good.items()) {
    EXPECT_NE(error_with([&](json& object) { object.erase(key); }).find("acceptance"),
              std::string::npos)
        << key;
    EXPECT_NE(set(key.c_str(), json::array({json::object()})).find(key), std::string::npos) << key;
  }
  EXPECT_NE(set("canopy_acceptance", 2).find("canopy_acceptance"), std::string::npos);
  EXPECT_NE(set("accept", {0.9, 0.2, 0}).find("more than 1"), std::string::npos);
  EXPECT_NE(set("accept", {0.9, -0.2, 0}).find("accept"), std::string::npos);
  EXPECT_NE(set("accept", {0.5}).find("as long as"), std::string::npos);
  EXPECT_NE(set("accept", json::array()).find("accept"), std::string::npos);
  EXPECT_NE(set("standard_error", {0, nullptr, 0}).find("standard_error"), std::string::npos);
  EXPECT_NE(set("positions", 1e300).find("positions"), std::string::npos);
  EXPECT_NE(set("examples", -1).find("examples"), std::string::npos);
  EXPECT_NE(set("top_p", 1.5).find("top_p"), std::string::npos);
  EXPECT_NE(set("temperature", 1e300).find("temperature"), std::string::npos);
  for (const char* text : {"", "[", "[]", "3", "{}", "{\"accept\": [1]}"})
    EXPECT_NE(error_of([&] { acceptance_from_json(text); }).find("acceptance"), std::string::npos)
        << text;
}

TEST(AcceptanceFile, IsReadOrRefusedWhateverIsDoneToItsBytes) {
  const std::string good = to_json(sample());
  std::mt19937 random(1);
  int refused = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    std::string bad = good;
    for (auto edits = 1 + random() % 4; edits > 0; --edits)
      bad[random() % bad.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bad.resize(random() % bad.size());
    const std::string error = error_of([&] {
      double sum = 0;
      for (const double p : acceptance_from_json(bad).acceptance.accept) {
        EXPECT_TRUE(p >= 0 && p <= 1);
        sum += p;
      }
      EXPECT_LE(sum, 1 + 1e-9);
    });
    refused += !error.empty();
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace canopy
