#include "offload/upload/device_weights.h"

#include "tests/kernels/emulated_cuda.h"
#include "tests/offload/sweeper.h"

namespace canopy {
namespace {

using test::make_tiny;
using test::Sweeper;
using test::TinyCheckpoint;

/// Any tier for each unit; at least one goes to the device in each sweep, and with `disk` one is
/// read.
Residency scatter(const SweepLayout& sweep, std::uint64_t seed, bool disk) {
  std::mt19937_64 random(seed);
  Residency residency = all_resident(sweep);
  for (Tier& tier : residency.unit)
    tier = static_cast<Tier>(disk ? random() % 3 : 1 + random() % 2);
  residency.unit[random() % sweep.units.size()] = disk ? Tier::kDisk : Tier::kHost;
  residency.table = !disk || random() % 2 == 0 ? Tier::kHost : Tier::kDisk;
  return residency;
}

class DeviceWeightsTest : public testing::TestWithParam<bool> {
 protected:
  /// A ring of `units` of the largest unit.
  std::unique_ptr<UploadedWeights> make(const TinyCheckpoint& tiny, const Residency& residency,
                                        std::size_t units, StreamerOptions options = {}) {
    std::unique_ptr<WeightSource> host;
    if (travelling_bytes(tiny.sweep, residency) > 0) {
      options.ring_bytes = least_ring(tiny.sweep, residency) / 2 * units;
      host = std::make_unique<Streamer>(device_, tiny.sweep, residency, options);
    } else {
      host = load_on_host(device_, tiny.sweep, residency, {notes_});
    }
    auto made = std::make_unique<UploadedWeights>(device_, tiny.sweep, residency, std::move(host),
                                                  Loading{notes_});
    made->begin(least_device_ring(tiny.sweep, residency) / 2 * units, notes_);
    return made;
  }

  EmulatedCuda device_;
  const TempDir dir_;
  Notes notes_;
};

TEST_P(DeviceWeightsTest, RightBytesInEverySweepWhereverTheyRest) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4,
                                                        .files = 2,
                                                        .tied = seed % 2 == 0,
                                                        .bias = true,
                                                        .seed = seed,
                                                        .unequal = seed > 4});
    const Residency residency = scatter(tiny.sweep, seed, GetParam());
    for (const std::size_t ring : {2, 3, 50}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << " ring " << ring);
      const auto source = make(tiny, residency, ring);
      Sweeper sweeper(device_, tiny, *source, seed);
      for (int sweep = 0; sweep < 4; ++sweep) sweeper.run(source->units().size(), sweep % 2 == 1);
      const UploadedWeights::Totals totals = source->totals();
      EXPECT_GE(totals.bytes, 4 * uploaded_bytes(tiny.sweep, residency));
      EXPECT_LE(totals.bytes,
                4 * uploaded_bytes(tiny.sweep, residency) + ring * 2 * source->held_bytes());
      EXPECT_GT(totals.busy.count(), 0);
    }
  }
  EXPECT_EQ(notes_, Notes{});
}

TEST_P(DeviceWeightsTest, AMatrixIsCopiedInPiecesSoThatNothingWaitsLongBehindIt) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 1, .dim = 512, .hidden = 17024});
  const Residency residency = scatter(tiny.sweep, 1, GetParam());
  ASSERT_NE(residency.unit[1], Tier::kDevice);  // the MLP, of 17.4 MB a matrix
  const auto source = make(tiny, residency, 2);
  Sweeper sweeper(device_, tiny, *source, 1);
  for (int sweep = 0; sweep < 2; ++sweep) sweeper.run(source->units().size());
  EXPECT_EQ(device_.largest_copy(), std::size_t{16} << 20);
}

TEST_P(DeviceWeightsTest, ASweepThatIsAbandonedAnywhereIsFollowedByAWholeOne) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4});
  const Residency residency = scatter(tiny.sweep, 11, GetParam());
  for (const std::size_t ring : {2, 7}) {
    const auto source = make(tiny, residency, ring);
    Sweeper sweeper(device_, tiny, *source, 3);
    for (std::size_t count = 0; count <= source->units().size(); ++count) {
      sweeper.run(count % (source->units().size() + 1));
      source->abandon_sweep();
      sweeper.run(source->units().size(), count % 3 == 0);
    }
  }
}

TEST_P(DeviceWeightsTest, HoldsWhatWasPlanned) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 3});
  const Residency residency = scatter(tiny.sweep, 5, GetParam());
  const auto source = make(tiny, residency, 2);
  EXPECT_EQ(source->held_bytes(), DeviceWeights::bytes_needed(tiny.sweep, residency) +
                                      least_device_ring(tiny.sweep, residency));
  std::uint64_t all = 0;
  const auto whole = load_resident(device_, tiny.sweep,
                                   {notes_, [&](std::uint64_t, std::uint64_t a) { all = a; }});
  EXPECT_EQ(all + EmbeddingLookup::bytes_needed(), device_resident_bytes(tiny.sweep));
  Sweeper sweeper(device_, tiny, *whole);
  sweeper.run(whole->units().size());
}

TEST_P(DeviceWeightsTest, EmbedsTheSameRowsFromEveryTier) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const auto cpu = make_device({.threads = 1});
  const std::vector<TokenId> ids{3, 0, 96, 3};
  const auto rows_of = [&](Device& device, WeightSource& source) {
    const auto stream = device.make_stream("test");
    const Buffer out = device.allocate(ids.size() * 64 * sizeof(float));
    source.embedding().look_up(ids, *stream,
                               TensorView(out.data(), DType::kF32, {std::ssize(ids), 64}));
    std::vector<float> values(ids.size() * 64);
    device.download(*stream, std::as_writable_bytes(std::span(values)), out.data());
    stream->synchronize();
    return values;
  };
  const auto expected = rows_of(*cpu, *load_resident(*cpu, tiny.sweep, {notes_}));
  for (const std::uint64_t seed : {1, 2, 3, 4})
    EXPECT_EQ(rows_of(device_, *make(tiny, scatter(tiny.sweep, seed, GetParam()), 2)), expected);
  EXPECT_EQ(rows_of(device_, *load_resident(device_, tiny.sweep, {notes_})), expected);
}

TEST_P(DeviceWeightsTest, EndsAtAnyMoment) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 5});
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const auto source = make(tiny, scatter(tiny.sweep, seed, GetParam()), 2 + seed % 3);
    Sweeper sweeper(device_, tiny, *source, seed);
    sweeper.run(seed % (source->units().size() + 1));
  }
}

TEST_P(DeviceWeightsTest, SaysWhatIsWrong) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const Residency residency = scatter(tiny.sweep, 7, GetParam());
  EXPECT_NE(error_of([&] { make(tiny, residency, 1); }).find("one unit while another is in use"),
            std::string::npos);
  const auto source = make(tiny, residency, 2);
  const auto stream = device_.make_stream("test");
  EXPECT_NE(error_of([&] { source->acquire(2, *stream); }).find("out of turn: 0 is next"),
            std::string::npos);
}

TEST(DeviceWeights, AReadThatFailsIsToldWhereItIsWaitedFor) {
  EmulatedCuda device;
  const TempDir dir;
  const TinyCheckpoint tiny = make_tiny(dir.path(), {});
  const Residency residency = none_resident(tiny.sweep);
  Notes notes;
  auto streamer =
      std::make_unique<Streamer>(device, tiny.sweep, residency,
                                 StreamerOptions{.ring_bytes = least_ring(tiny.sweep, residency)});
  UploadedWeights source(device, tiny.sweep, residency, std::move(streamer), {notes});
  source.begin(least_device_ring(tiny.sweep, residency), notes);
  std::filesystem::resize_file(tiny.checkpoint.files().front(), 4096);
  const auto stream = device.make_stream("test");
  const std::string why = error_of([&] {
    for (int sweep = 0; sweep < 100; ++sweep)
      for (std::size_t i = 0; i < tiny.sweep.units.size(); ++i) source.acquire(i, *stream);
  });
  EXPECT_NE(why.find(tiny.checkpoint.files().front().string()), std::string::npos) << why;
}

TEST(DeviceWeights, AFailureThatIsNoLackOfRoomIsThrownAndMakesNoSmallerRing) {
  EmulatedCuda device;
  const TempDir dir;
  const TinyCheckpoint tiny = make_tiny(dir.path(), {});
  const Residency residency = none_resident(tiny.sweep);
  Notes notes;
  auto streamer =
      std::make_unique<Streamer>(device, tiny.sweep, residency,
                                 StreamerOptions{.ring_bytes = least_ring(tiny.sweep, residency)});
  UploadedWeights source(device, tiny.sweep, residency, std::move(streamer), {notes});
  device.card().fail_at(device.card().calls() + 1);
  const std::int64_t before = device.card().calls();
  const std::string why =
      error_of([&] { source.begin(4 * least_device_ring(tiny.sweep, residency), notes); });
  EXPECT_EQ(why.find(EmulatedCard::kFailure), 0u) << why;
  EXPECT_EQ(why.find("making room"), std::string::npos) << why;
  EXPECT_EQ(device.card().calls(), before + 1);
}

INSTANTIATE_TEST_SUITE_P(Tiers, DeviceWeightsTest, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "DiskHostDevice" : "HostDevice");
});

}  // namespace
}  // namespace canopy
