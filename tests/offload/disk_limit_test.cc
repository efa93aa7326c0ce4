#include "offload/io/disk_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "src/base/error.h"
#include "tests/offload/sweeper.h"

namespace canopy {
namespace {

using namespace test;
using DiskLimitTest = StreamerFixture;

/// An engine that has read everything as soon as it is asked, and answers the last read first.
class InstantReads final : public ReadEngine {
 public:
  std::size_t depth() const override { return 8; }
  void submit(std::span<const ReadRequest> requests) override {
    for (const ReadRequest& request : requests)
      done_.push_back({request.tag, static_cast<std::int64_t>(request.into.size())});
  }
  std::size_t wait(std::span<ReadDone> done) override {
    const std::size_t count = std::min(done.size(), done_.size());
    for (std::size_t i = 0; i < count; ++i) {
      done[i] = done_.back();
      done_.pop_back();
    }
    return count;
  }
  std::vector<ReadDone> done_;
};

/// A clock that moves by what is slept.
struct PlayedTime {
  Clock::time_point now;
  Seconds since_start() const { return now.time_since_epoch(); }
  ReadTime time() {
    return {[this] { return now; }, [this](Clock::time_point then) { now = std::max(now, then); }};
  }
};

/// Asks for reads of 4 KiB with tags from `first` on.
void ask(ReadEngine& engine, std::uint64_t first, std::uint64_t count) {
  static std::vector<std::byte> memory(kReadAlignment);
  for (std::uint64_t tag = first; tag < first + count; ++tag) {
    const ReadRequest request{0, 0, memory, tag};
    engine.submit({&request, 1});
  }
}
/// Waits for all reads; returns their tags.
std::vector<std::uint64_t> take(ReadEngine& engine, std::size_t at_most = 8) {
  std::vector<std::uint64_t> tags;
  std::vector<ReadDone> done(at_most);
  while (const std::size_t count = engine.wait(done))
    for (const ReadDone& one : std::span(done).first(count)) {
      EXPECT_EQ(one.result, kReadAlignment);
      tags.push_back(one.tag);
    }
  return tags;
}

TEST(DiskLimit, ReadsOneAfterAnotherAtItsRate) {
  PlayedTime played;
  const auto limit = std::make_shared<DiskLimit>(4096.0);
  const auto engine = limit_reads(std::make_unique<InstantReads>(), limit, played.time());
  ask(*engine, 0, 4);
  std::vector<ReadDone> done(8);
  ASSERT_EQ(engine->wait(done), 1u) << "the others are not due";
  EXPECT_EQ(done[0].tag, 0u) << "the first that was asked for, though it came last";
  EXPECT_EQ(played.since_start(), Seconds(1));
  EXPECT_EQ(take(*engine), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(played.since_start(), Seconds(4));
}

TEST(DiskLimit, SavesNothingUpInAPause) {
  PlayedTime played;
  const auto engine = limit_reads(std::make_unique<InstantReads>(),
                                  std::make_shared<DiskLimit>(4096.0), played.time());
  ask(*engine, 0, 2);
  played.now += std::chrono::seconds(100);
  EXPECT_EQ(take(*engine, 1), (std::vector<std::uint64_t>{0, 1})) << "they were due long ago";
  EXPECT_EQ(played.since_start(), Seconds(100));
  ask(*engine, 2, 3);
  take(*engine);
  EXPECT_EQ(played.since_start(), Seconds(103));
}

TEST(DiskLimit, IsOneForAllEnginesThatShareIt) {
  PlayedTime played;
  const auto limit = std::make_shared<DiskLimit>(4096.0);
  const auto a = limit_reads(std::make_unique<InstantReads>(), limit, played.time()),
             b = limit_reads(std::make_unique<InstantReads>(), limit, played.time());
  ask(*a, 0, 3);
  ask(*b, 0, 2);
  take(*b);
  EXPECT_EQ(played.since_start(), Seconds(5)) << "b's reads wait for a's";
}

TEST(DiskLimit, PassesErrorsOn) {
  PlayedTime played;
  auto inner = std::make_unique<InstantReads>();
  InstantReads& reads = *inner;
  const auto engine =
      limit_reads(std::move(inner), std::make_shared<DiskLimit>(4096.0), played.time());
  ask(*engine, 7, 1);
  reads.done_[0].result = -EIO;
  ReadDone done;
  ASSERT_EQ(engine->wait({&done, 1}), 1u);
  EXPECT_EQ(done.tag, 7u);
  EXPECT_EQ(done.result, -EIO);
  EXPECT_EQ(engine->wait({&done, 1}), 0u) << "nothing is in flight";
}

TEST(DiskLimit, IsAbove0) { EXPECT_THROW(DiskLimit(0), Error); }

TEST_F(DiskLimitTest, HoldsAStreamerToItsRateAndLeavesItsBytesAlone) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  constexpr double kRate = 4e6;
  StreamerOptions options;
  options.limit = std::make_shared<DiskLimit>(kRate);
  options.read_bytes = kReadAlignment;
  const auto start = Clock::now();
  const auto streamer = make(tiny, options);
  Sweeper sweeper(*device_, tiny, *streamer);
  for (int sweep = 0; sweep < 3; ++sweep) sweeper.sweep();
  const auto bytes = static_cast<double>(streamer->totals().disk_bytes);
  // A slow machine takes longer, and none less.
  EXPECT_GE(since(start).count(), bytes / kRate);
  EXPECT_GT(bytes, 0);
}

}  // namespace
}  // namespace canopy
