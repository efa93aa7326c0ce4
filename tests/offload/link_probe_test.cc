#include "offload/io/link_probe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/machine/host_slab.h"
#include "tests/checkpoint/tiny_checkpoint.h"

namespace canopy {
namespace {

TEST(LinkProbe, StopsOnRequest) {
  const TempDir dir;
  const auto file = test::write_file(dir / "file", test::random_bytes(3 << 20, 1));
  const HostSlab memory(8u << 20);
  Notes notes;
  std::stop_source stop;
  stop.request_stop();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(
      LinkProbe(file, memory.bytes(), false, true).best(1000, Seconds(1), notes, stop.get_token()),
      Stopped);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(100));
}

TEST(LinkProbe, ReadsOnWhereTheLastOneEndedAndAroundTheEnd) {
  const TempDir dir;
  const auto content = test::random_bytes(10 * 4096 + 100, 1);
  const auto file = test::write_file(dir / "file", content);
  const HostSlab memory(8 * 4096);
  Notes notes;
  LinkProbe probe(file, memory.bytes(), false, false);
  const LinkSample one = probe.run({.read_bytes = 4096, .queue_depth = 3}, Seconds(0), notes);
  EXPECT_EQ(one.bytes, 3u * 4096) << "the queue was filled once";
  EXPECT_GT(one.bytes_per_second(), 0);
  EXPECT_TRUE(std::equal(memory.data(), memory.data() + 3 * 4096, content.begin()));
  // Reads 3 to 10, of which the last is the file's first again.
  const LinkSample two = probe.run({.read_bytes = 4096, .queue_depth = 8}, Seconds(0), notes);
  EXPECT_EQ(two.bytes, 8u * 4096);
  EXPECT_TRUE(std::equal(memory.data(), memory.data() + 7 * 4096, content.begin() + 3 * 4096));
  EXPECT_TRUE(std::equal(memory.data() + 7 * 4096, memory.data() + 8 * 4096, content.begin()));
}

TEST(LinkProbe, FillsAllOfTheMemoryAndHasNoMoreInFlightThanItHolds) {
  const TempDir dir;
  const auto file = test::write_file(dir / "file", std::vector<std::byte>(1 << 20, std::byte{7}));
  const HostSlab memory(64 * 4096);
  Notes notes;
  LinkProbe probe(file, memory.bytes(), false, false);
  for (std::uint64_t bytes = 0; bytes < 2 * memory.size();)
    bytes += probe.run({.read_bytes = 4096, .queue_depth = 4}, Seconds(0.002), notes).bytes;
  std::size_t filled = 0;
  for (const std::byte b : memory.bytes()) filled += b == std::byte{7};
  EXPECT_GE(filled, 5u * 4096) << "reads land beyond the first four places";
  const LinkSample few = LinkProbe(file, memory.bytes().first(3 * 4096), false, true)
                             .run({.read_bytes = 4096, .queue_depth = 16}, Seconds(0), notes);
  EXPECT_EQ(few.queue_depth, 3u);
  EXPECT_EQ(few.bytes, 3u * 4096);
}

TEST(LinkProbe, ChoosesAWayThatFitsTheFileAndTheMemory) {
  const TempDir dir;
  const auto file = test::write_file(dir / "file", test::random_bytes(3 << 20, 1));
  const HostSlab memory(8u << 20), small(1u << 20);
  Notes notes;
  const LinkSample best =
      LinkProbe(file, memory.bytes(), false, true).best(2, Seconds(0.02), notes);
  EXPECT_GT(best.bytes, 0u);
  EXPECT_LE(best.read_bytes, 3u << 20);
  EXPECT_LE(LinkProbe(file, small.bytes(), false, true).best(1, Seconds(0.02), notes).read_bytes,
            1u << 20);
}

TEST(LinkProbe, AsksForHalfOfTheMemoryAtMostOrForWhatOthersCanWaitFor) {
  const TempDir dir;
  const auto file = test::write_file(dir / "file", test::random_bytes(5 << 20, 1));
  const HostSlab memory(128u << 20);
  Notes notes;
  const auto in_flight = [&](std::size_t bytes, std::size_t most) {
    const LinkSample best = LinkProbe(file, memory.bytes().first(bytes), false, true)
                                .best(1, Seconds(0.02), notes, {}, most);
    EXPECT_GT(best.bytes, 0u);
    return best.read_bytes * best.queue_depth;
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_LE(in_flight(128u << 20, kMostInFlight), 64u << 20);
    EXPECT_LE(in_flight(64u << 20, kMostInFlight), 16u << 20);
    EXPECT_LE(in_flight(128u << 20, 16u << 20), 16u << 20);
  }
}

TEST(LinkProbe, RefusesAFileOrAMemorySmallerThanARead) {
  const TempDir dir;
  const auto file = test::write_file(dir / "file", test::random_bytes(100, 1));
  const auto large = test::write_file(dir / "large", test::random_bytes(2 << 20, 1));
  const HostSlab memory(2u << 20);
  Notes notes;
  EXPECT_THROW(LinkProbe(file, memory.bytes(), true, true).run({}, Seconds(0), notes), Error);
  EXPECT_THROW(LinkProbe(large, memory.bytes().first(4096), true, true).run({}, Seconds(0), notes),
               Error);
}

}  // namespace
}  // namespace canopy
