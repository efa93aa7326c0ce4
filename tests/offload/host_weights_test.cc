#include "offload/host_weights.h"

#include <gtest/gtest.h>

#include "kernels/device.h"
#include "offload/streamer.h"
#include "src/machine/process_memory.h"
#include "tests/checkpoint/tiny_checkpoint.h"

namespace canopy {
namespace {

// A model of 140 GB is loaded for minutes.
class HostWeightsTest : public testing::Test {
 protected:
  const TempDir dir_;
  const test::TinyCheckpoint model_ = test::make_tiny(
      dir_.path(), {.layers = 1, .dim = 512, .hidden = 64, .vocab = 1 << 16, .tied = true});
  const std::unique_ptr<Device> device_ = make_device({.threads = 1});
  Notes notes_;
};

TEST_F(HostWeightsTest, TakeMemoryAsTheyAreRead) {
  const std::uint64_t before = resident_memory();
  std::uint64_t at_first = 0, last = 0, bytes = 0;
  const auto weights =
      load_resident(*device_, model_.sweep, {notes_, [&](std::uint64_t done, std::uint64_t all) {
                                               EXPECT_GE(done, last);
                                               if (bytes == 0)
                                                 at_first = resident_memory() - before;
                                               last = done, bytes = all;
                                             }});
  EXPECT_EQ(last, bytes);
  EXPECT_GT(bytes, 64u << 20);
  EXPECT_LT(at_first, bytes / 2);
  EXPECT_GE(resident_memory() - before, bytes / 10 * 9);
}

TEST_F(HostWeightsTest, StopWhileTheyAreRead) {
  std::stop_source stop;
  std::uint64_t last = 0;
  const auto load = [&] {
    const auto weights = load_resident(*device_, model_.sweep,
                                       {notes_,
                                        [&](std::uint64_t done, std::uint64_t) {
                                          last = done;
                                          stop.request_stop();
                                        },
                                        stop.get_token()});
  };
  EXPECT_THROW(load(), Stopped);
  EXPECT_LT(last, 64u << 20);
}

}  // namespace
}  // namespace canopy
