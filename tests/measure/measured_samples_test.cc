#include "src/measure/steps/measured_samples.h"

#include <gtest/gtest.h>

#include "tests/error_of.h"

namespace canopy {
namespace {

TEST(MeasuredSamples, AreReadAsTheyWereWritten) {
  MeasuredSamples samples;
  samples.add("link", {1e9, Seconds(0.75)});
  for (const double rows : {1.0, 4.0, 1.0}) samples.add("sweep", {rows, Seconds(rows / 3)});
  const MeasuredSamples read = MeasuredSamples::from_json(samples.to_json("code"), "code");
  EXPECT_EQ(read.times("link", 1e9), std::vector{Seconds(0.75)});
  EXPECT_EQ(read.times("sweep", 1), (std::vector{Seconds(1 / 3.0), Seconds(1 / 3.0)}));
  EXPECT_EQ(read.all("sweep").size(), 3u);
  EXPECT_TRUE(read.all("verify").empty());
  EXPECT_EQ(read.to_json("code"), samples.to_json("code"));
}

TEST(MeasuredSamples, OfOtherCodeAreNone) {
  MeasuredSamples samples;
  samples.add("link", {1, Seconds(1)});
  EXPECT_TRUE(MeasuredSamples::from_json(samples.to_json("old"), "new").empty());
}

TEST(MeasuredSamples, ATextThatHoldsNoneIsRefused) {
  const std::string head = R"({"canopy_measurement": 1, "code": "", "samples": )";
  for (const std::string& text :
       {std::string("{"), std::string("[]"), std::string(R"({"canopy_measurement": 2})"),
        head + "[]}", head + R"({"link": 1}})", head + R"({"link": [[1]]}})",
        head + R"({"link": [[1, "x"]]}})", head + R"({"link": [[1, -1]]}})"})
    EXPECT_NE(error_of([&] { MeasuredSamples::from_json(text, ""); }).find("measurement"),
              std::string::npos)
        << text;
}

}  // namespace
}  // namespace canopy
