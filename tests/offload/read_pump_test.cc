#include "offload/io/read_pump.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace canopy {
namespace {

using Urgency = ReadPump::Urgency;
constexpr std::size_t kPiece = kReadAlignment;

/// Keeps what it is asked for until the test answers it, the oldest first.
class HeldReads final : public ReadEngine {
 public:
  std::size_t depth() const override { return 4; }
  void submit(std::span<const ReadRequest> requests) override {
    asked.insert(asked.end(), requests.begin(), requests.end());
  }
  std::size_t wait(std::span<ReadDone> done) override {
    if (answered == asked.size()) return 0;
    const ReadRequest& oldest = asked[answered++];
    done[0] = {oldest.tag, static_cast<std::int64_t>(oldest.into.size())};
    return 1;
  }
  /// The offsets of all requests so far, in pieces.
  std::vector<std::uint64_t> places() const {
    std::vector<std::uint64_t> all;
    for (const ReadRequest& one : asked) all.push_back(one.offset / kPiece);
    return all;
  }

  std::vector<ReadRequest> asked;
  std::size_t answered = 0;
};

class ReadPumpTest : public ::testing::Test {
 protected:
  /// Queues `pieces` requests from place `first` of the file on.
  void add(std::uint64_t owner, std::uint64_t first, std::size_t pieces, Urgency urgency) {
    const std::size_t bytes = pieces * kPiece;
    const Extent extent{0, first * kPiece, bytes, bytes, 0};
    pump_.add({&extent, 1}, slab_.data(), owner, urgency);
  }
  std::vector<std::uint64_t> finish() {
    while (!pump_.idle()) pump_.step();
    return engine_.places();
  }
  using Places = std::vector<std::uint64_t>;

  HeldReads engine_;
  std::vector<std::byte> slab_ = std::vector<std::byte>(64 * kPiece);
  ReadPump pump_{engine_, {"file"}, kPiece, [](std::uint64_t) { return "it"; }};
};

TEST_F(ReadPumpTest, WhatIsLikelyWaitsUntilNothingNeededIsOnItsWay) {
  add(1, 10, 3, Urgency::kLikely);
  add(2, 0, 2, Urgency::kNeeded);
  pump_.submit();
  EXPECT_EQ(engine_.places(), (Places{0, 1})) << "though the queue has room for more";
  pump_.step();
  pump_.submit();
  EXPECT_EQ(engine_.places(), (Places{0, 1})) << "one that is needed is still in flight";
  pump_.step();
  pump_.submit();
  EXPECT_EQ(engine_.places(), (Places{0, 1, 10, 11})) << "as many as keep the link busy";
  EXPECT_EQ(finish(), (Places{0, 1, 10, 11, 12}));
}

TEST_F(ReadPumpTest, WhatIsNeededPassesWhatIsLikely) {
  add(1, 10, 5, Urgency::kLikely);
  pump_.submit();
  add(2, 0, 2, Urgency::kNeeded);
  EXPECT_EQ(finish(), (Places{10, 11, 0, 1, 12, 13, 14}));
}

TEST_F(ReadPumpTest, WhatIsLikelyMayBecomeNeeded) {
  add(1, 10, 3, Urgency::kLikely);
  add(2, 20, 3, Urgency::kLikely);
  pump_.submit();
  pump_.hurry(2);
  pump_.submit();
  EXPECT_EQ(engine_.places(), (Places{10, 11, 20, 21})) << "as far as the engine's queue holds";
  EXPECT_EQ(finish(), (Places{10, 11, 20, 21, 22, 12}));
}

TEST_F(ReadPumpTest, ForgetsWhatIsNotInFlight) {
  add(1, 10, 5, Urgency::kLikely);
  add(2, 20, 1, Urgency::kLikely);
  pump_.submit();
  EXPECT_EQ(pump_.forget(1), 3 * kPiece);
  EXPECT_EQ(pump_.forget(1), 0u);
  EXPECT_EQ(pump_.forget(3), 0u) << "nobody's";
  EXPECT_EQ(finish(), (Places{10, 11, 20}));
  EXPECT_TRUE(pump_.idle());
}

}  // namespace
}  // namespace canopy
