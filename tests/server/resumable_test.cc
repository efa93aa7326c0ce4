#include "src/server/resumable.h"

#include <gtest/gtest.h>

#include <thread>

namespace canopy::server {
namespace {

using namespace std::chrono_literals;

TEST(ResumableStream, GivesEachReaderWhatFollowsTheEventThatItHasSeen) {
  ResumableStream stream;
  stream.add("data: a\n\ndata: b\n\n");
  ResumableStream::Events events = stream.after(0, 0ms);
  EXPECT_EQ(events.text, "id: 1\ndata: a\n\nid: 2\ndata: b\n\n");
  EXPECT_EQ(events.last, 2U);
  EXPECT_FALSE(events.ended);
  EXPECT_EQ(stream.after(1, 0ms).text, "id: 2\ndata: b\n\n");
  EXPECT_EQ(stream.after(2, 0ms).text, "");
  EXPECT_EQ(stream.after(99, 0ms).text, "");  // of another stream, perhaps
  stream.add("data: c\n\n");
  stream.end();
  events = stream.after(2, 0ms);
  EXPECT_EQ(events.text, "id: 3\ndata: c\n\n");
  EXPECT_TRUE(events.ended);
}

TEST(ResumableStream, WakesAReaderThatWaits) {
  ResumableStream stream;
  std::jthread writer([&] { stream.add("data: a\n\n"); });
  EXPECT_EQ(stream.after(0, 60s).last, 1U);
}

TEST(ResumableStream, IsAbandonedWhenNobodyHasReadItForLong) {
  ResumableStream stream;
  const auto later = ResumableStream::Clock::now() + 2 * ResumableStream::kPatience;
  stream.attach();
  EXPECT_FALSE(stream.abandoned(later));
  stream.detach();
  EXPECT_FALSE(stream.abandoned(ResumableStream::Clock::now()));
  EXPECT_TRUE(stream.abandoned(later));
}

TEST(ResumableStreams, AreFoundByTheirIds) {
  ResumableStreams streams;
  const auto one = streams.add("one");
  EXPECT_EQ(streams.find("one"), one);
  EXPECT_EQ(streams.find("two"), nullptr);
}

}  // namespace
}  // namespace canopy::server
