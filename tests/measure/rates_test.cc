// Rates of a machine: of copies, and of the link under a model.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/measure/copies.h"
#include "src/measure/link.h"

namespace canopy {
namespace {

TEST(MeasureCopies, TellsARateForEachWay) {
  const auto device = make_device({.kind = "cpu", .threads = 1});
  const CopyRates rates = measure_copies(*device, 1 << 20);
  for (const double rate : {rates.up, rates.down, rates.pageable_up, rates.pageable_down})
    EXPECT_GT(rate, 0);
}

TEST(LinkMeasurement, SweepsAllUnitsAndReadsRawAtATurn) {
  LinkMeasurement link(
      Checkpoint::open(std::filesystem::path(CANOPY_TEST_DATA) / "model" / "llama2"));
  StreamerOptions options;
  options.ring_bytes = link.least_ring();
  options.read_bytes = 4096;  // the model is a small one
  std::size_t seen = 0;
  const LinkTurn turn = link.turn(options, [&](std::size_t units) { seen = units; }, {});
  EXPECT_EQ(seen, link.units());
  EXPECT_GT(turn.raw, 0);
  EXPECT_GT(turn.sweep, 0);
  EXPECT_GT(turn.busy, 0);
}

TEST(LinkMeasurement, StopsOnRequest) {
  LinkMeasurement link(
      Checkpoint::open(std::filesystem::path(CANOPY_TEST_DATA) / "model" / "llama2"));
  StreamerOptions options;
  options.ring_bytes = link.least_ring();
  options.read_bytes = 4096;  // the model is a small one
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(link.turn(options, {}, stop.get_token()), Stopped);
}

}  // namespace
}  // namespace canopy
