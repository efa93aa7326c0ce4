#include "src/base/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "tests/temp_dir.h"

namespace canopy {
namespace {

nlohmann::json read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

TEST(Trace, WritesEverySpanOfEveryThreadAsJson) {
  const TempDir dir;
  const auto path = dir / "trace.json";
  {
    Trace trace(path);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&trace] {
        for (int i = 0; i < 100; ++i) {
          const auto now = Trace::Clock::now();
          trace.span(Trace::Lane::kLink, "MLP 3", now, now + std::chrono::milliseconds(2), 4096);
        }
      });
    for (std::thread& thread : threads) thread.join();
    trace.close();
  }
  int spans = 0;
  for (const auto& event : read(path)) {
    if (event.at("ph") != "X") continue;
    ++spans;
    EXPECT_EQ(event.at("name"), "MLP 3");
    EXPECT_NEAR(event.at("dur").get<double>(), 2000, 0.01);
    EXPECT_GE(event.at("ts").get<double>(), 0);
    EXPECT_EQ(event.at("args").at("bytes"), 4096);
  }
  EXPECT_EQ(spans, 400);
}

TEST(Trace, IsJsonWhateverItsSpansAreCalled) {
  const TempDir dir;
  const auto now = Trace::Clock::now();
  Trace trace(dir / "trace.json");
  trace.span(Trace::Lane::kHost, "a \"b\" \\ \n\x01", now, now);
  trace.span(Trace::Lane::kHost, "\xff", now, now);
  trace.close();
  const nlohmann::json events = read(dir / "trace.json");
  EXPECT_EQ(events.at(events.size() - 2).at("name"), "a \"b\" \\ \n\x01");
  EXPECT_EQ(events.back().at("name"), "\uFFFD");
}

TEST(Trace, IsCompleteWithoutAClose) {
  const TempDir dir;
  { const Trace trace(dir / "trace.json"); }
  EXPECT_TRUE(read(dir / "trace.json").is_array());
}

TEST(Trace, LeavesWhatWasThereUntilItIsComplete) {
  const TempDir dir;
  dir.write("trace.json", "[1]");
  Trace trace(dir / "trace.json");
  EXPECT_EQ(read(dir / "trace.json").size(), 1u);
  trace.close();
  EXPECT_GT(read(dir / "trace.json").size(), 1u);
}

TEST(Trace, SaysWhenItCannotBeWritten) { EXPECT_THROW(Trace("/no/such/folder/trace.json"), Error); }

}  // namespace
}  // namespace canopy
