#include "offload/link_probe.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/offload/tiny_checkpoint.h"

namespace canopy {
namespace {

TEST(LinkProbe, ReadsOnWhereTheLastOneEndedAndAroundTheEnd) {
  const TempDir dir;
  const auto file = test::write_file(dir / "file", test::random_bytes(10 * 4096 + 100, 1));
  std::uint64_t position = 0;
  Notes notes;
  const LinkSample one = probe_link(file, {.read_bytes = 4096, .queue_depth = 3}, false, false,
                                    Seconds(0), position, notes);
  EXPECT_EQ(one.bytes, 3u * 4096) << "the queue was filled once";
  EXPECT_EQ(position, 3u * 4096);
  probe_link(file, {.read_bytes = 4096, .queue_depth = 8}, false, false, Seconds(0), position,
             notes);
  EXPECT_EQ(position, 4096u);
  EXPECT_GT(one.bytes_per_second(), 0);
}

TEST(LinkProbe, ChoosesAWayThatFitsTheFile) {
  const TempDir dir;
  const auto file = test::write_file(dir / "file", test::random_bytes(3 << 20, 1));
  Notes notes;
  const LinkSample best = best_link(file, false, true, 2, Seconds(0.02), notes);
  EXPECT_GT(best.bytes, 0u);
  EXPECT_LE(best.read_bytes, 3u << 20);
}

TEST(LinkProbe, RefusesAFileSmallerThanARead) {
  const TempDir dir;
  const auto file = test::write_file(dir / "file", test::random_bytes(100, 1));
  std::uint64_t position = 0;
  Notes notes;
  EXPECT_THROW(probe_link(file, {}, true, true, Seconds(0), position, notes), Error);
}

}  // namespace
}  // namespace canopy
