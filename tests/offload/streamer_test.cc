#include "offload/streamer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "offload/embedding.h"
#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "tests/offload/sweeper.h"

namespace canopy {
namespace {

using namespace test;
using StreamerTest = StreamerFixture;

TEST_F(StreamerTest, DeliversTheSameBytesForEveryRingReadSizeAndShape) {
  std::uint64_t seed = 0;
  for (const std::size_t ring_units : {2u, 3u, 5u, 40u})
    for (const std::size_t read_bytes :
         {std::size_t{4096}, std::size_t{20'000}, std::size_t{1} << 20})
      for (const bool rich : {false, true}) {
        SCOPED_TRACE(testing::Message() << ring_units << " units, reads of " << read_bytes);
        ++seed;
        const TinyShape shape{.layers = 1 + static_cast<int>(seed % 4),
                              .files = rich ? 2 : 1,
                              .tied = rich,
                              .bias = rich,
                              .qk_norm = rich,
                              .seed = seed,
                              .unequal = seed % 5 == 0};
        const TinyCheckpoint tiny = make_tiny(dir_.path(), shape);
        StreamerOptions options;
        options.read_bytes = read_bytes;
        options.queue_depth = 1 + seed % 7;
        options.io_uring = seed % 3 != 0;
        const Place place(tiny, seed % 3, ring_units);
        const auto streamer = make(tiny, options, seed % 3, ring_units);
        EXPECT_EQ(streamer->held_bytes(),
                  place.ring_bytes + Streamer::resting_bytes(tiny.sweep, place.residency));
        Sweeper sweeper(*device_, tiny, *streamer);
        for (int sweep = 0; sweep < 5; ++sweep) sweeper.sweep();
      }
}

TEST_F(StreamerTest, WaitsForQueuedWorkOnLentWeightsBeforeItGoes) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const std::vector<UnitLayout>& layouts = tiny.sweep.units;
  const UnitTensor& wq = layouts[0].matrices[0];
  std::vector<std::byte> ballast(1 << 24), scratch(1 << 24), received(wq.tensor.bytes);
  const auto compute = device_->make_stream("compute");
  {
    const auto made = make(tiny);
    Streamer& streamer = *made;
    const UnitLease lease = streamer.acquire(0, *compute);
    device_->download(*compute, scratch, ballast.data());
    device_->download(*compute, received, lease->matrix(TensorRole::kQuery).payload());
  }
  EXPECT_TRUE(received == tiny.content.at(wq.tensor.name)) << "and without another wait";
}

TEST_F(StreamerTest, RefusesUnitsOutOfTurnAndASecondLease) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const auto made = make(tiny);
  Streamer& streamer = *made;
  const auto compute = device_->make_stream("compute");
  EXPECT_THROW(streamer.acquire(1, *compute), Error);
  {
    const UnitLease lease = streamer.acquire(0, *compute);
    EXPECT_THROW(streamer.acquire(1, *compute), Error);
  }
  streamer.acquire(1, *compute);
  EXPECT_THROW(streamer.acquire(0, *compute), Error);
}

TEST_F(StreamerTest, RefusesARingOfOneUnit) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  EXPECT_THROW(make(tiny, {}, 0, 1), Error);
}

TEST_F(StreamerTest, RefusesAModelThatAllRests) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const Residency all = all_resident(tiny.sweep);
  EXPECT_THROW(Streamer(*device_, tiny.sweep, all, {.ring_bytes = 1 << 20}), Error);
}

/// Returns the bytes of the matrices alone, without those that are read around them.
std::uint64_t asked_for(const UnitLayout& unit) {
  std::uint64_t bytes = 0;
  for (const UnitTensor& matrix : unit.matrices) bytes += matrix.tensor.bytes;
  return bytes;
}

TEST_F(StreamerTest, PrefetchesTheNextSweepWhileNobodyAsksAndNoMoreThanTheRingHolds) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4});
  const auto reads = std::make_shared<ReadCount>();
  StreamerOptions options;
  options.wrap_engine = with({.count = reads}, 1);
  const auto made = make(tiny, options, 0, 3);
  Streamer& streamer = *made;
  Sweeper sweeper(*device_, tiny, streamer);
  sweeper.sweep();
  const std::vector<UnitLayout>& layouts = tiny.sweep.units;
  std::uint64_t once = 0;
  for (const UnitLayout& layout : layouts) once += asked_for(layout);
  wait_until_full(*reads);
  EXPECT_GE(streamer.totals().disk_bytes, once + asked_for(layouts[0]));
  EXPECT_LE(streamer.totals().disk_bytes, once + 2 * streamer.held_bytes())
      << "tables, one sweep, one ring";
  sweeper.sweep();
}

TEST_F(StreamerTest, ReadsThePartOfAUnitThatHasRoomWhileTheOneBeforeIsInUse) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4, .dim = 256, .hidden = 640});
  const std::vector<UnitLayout>& layouts = tiny.sweep.units;
  const std::size_t attention = layouts[2].read.slab_bytes, mlp = layouts[3].read.slab_bytes;
  ASSERT_LT(attention, mlp / 2);
  StreamerOptions options;
  options.read_bytes = kReadAlignment;
  const auto made = make(tiny, options, 0, 2);  // room for two of the largest
  Streamer& streamer = *made;
  const auto compute = device_->make_stream("compute");
  streamer.acquire(0, *compute);
  {
    const UnitLease lease = streamer.acquire(1, *compute);
    // The next MLP lies over this one and the attention before it, which has gone.
    const std::uint64_t vectors = (2 * 4 + 1) * 2 * kReadAlignment;  // norms at rest, at most
    const std::uint64_t whole_units = layouts[0].read.slab_bytes + mlp + attention;
    ASSERT_LT(vectors, attention);
    while (streamer.totals().disk_bytes <= whole_units + vectors)  // else: time-out
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::size_t i = 2; i < layouts.size(); ++i) streamer.acquire(i, *compute);
  Sweeper(*device_, tiny, streamer).sweep();
}

TEST_F(StreamerTest, CountsWhatASweepReadAndWhereItsTimeWent) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 6});
  StreamerOptions options;
  options.wrap_engine = with({.delay_us = 500}, 1);
  const auto made = make(tiny, options);
  Streamer& streamer = *made;
  Sweeper sweeper(*device_, tiny, streamer);
  std::uint64_t once = 0;
  for (const UnitLayout& layout : tiny.sweep.units) once += layout.read.slab_bytes;
  const std::uint64_t before = streamer.totals().disk_bytes;
  for (int sweep = 0; sweep < 8; ++sweep) {
    const auto start = std::chrono::steady_clock::now();
    const LinkTotals earlier = streamer.totals();
    sweeper.sweep();
    const LinkTotals now = streamer.totals();
    const Seconds wall = std::chrono::steady_clock::now() - start;
    EXPECT_GT(now.busy, earlier.busy);
    EXPECT_LE(now.busy - earlier.busy, wall);
    EXPECT_LE(now.stall - earlier.stall, wall);
  }
  // A sweep reads itself or ahead, so over many only the ring's content is open at either end, and
  // the blocks past the end of the file.
  const std::uint64_t slack = streamer.held_bytes() + 8 * kReadAlignment;
  EXPECT_GE(streamer.totals().disk_bytes - before + slack, 8 * once);
}

/// The share of a file's pages in the page cache.
double cached_share(const std::filesystem::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY);
  const std::size_t bytes = std::filesystem::file_size(path), pages = (bytes + 4095) / 4096;
  void* const map = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  std::vector<unsigned char> present(pages);
  mincore(map, bytes, present.data());
  munmap(map, bytes);
  close(descriptor);
  return static_cast<double>(std::count_if(present.begin(), present.end(),
                                           [](unsigned char p) { return (p & 1) != 0; })) /
         static_cast<double>(pages);
}

TEST_F(StreamerTest, LeavesThePageCacheAsItWas) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 8, .hidden = 4096});
  const std::filesystem::path file = tiny.checkpoint.files()[0];
  const auto evict = [&] {
    const int descriptor = open(file.c_str(), O_RDONLY);
    fsync(descriptor);
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    close(descriptor);
    return cached_share(file) < 0.01;
  };
  if (!evict()) GTEST_SKIP() << "this filesystem keeps its pages";
  for (const bool direct : {true, false}) {
    evict();
    StreamerOptions options;
    options.direct = direct;
    {
      const auto made = make(tiny, options);
      Streamer& streamer = *made;
      Sweeper sweeper(*device_, tiny, streamer);
      for (int sweep = 0; sweep < 3; ++sweep) sweeper.sweep();
      if (direct && !streamer.notes().empty()) GTEST_SKIP() << streamer.notes()[0];
    }
    EXPECT_LE(cached_share(file), 0.01);  // without O_DIRECT each page is dropped after its read
  }
}

TEST_F(StreamerTest, NotesEachFallbackAndNothingElse) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  StreamerOptions options;
  options.direct = options.io_uring = false;
  EXPECT_EQ(make(tiny, options, 1)->notes().size(), 2u);
}

TEST_F(StreamerTest, LendsResidentWeightsThatEqualTheStreamedOnes) {
  for (const bool tied : {false, true}) {
    const TinyCheckpoint tiny =
        make_tiny(dir_.path(), {.files = 2, .tied = tied, .bias = true, .qk_norm = true});
    std::uint64_t done = 0, all = 1;
    Notes notes;
    const auto told = [&](std::uint64_t d, std::uint64_t a) {
      EXPECT_LE(d, a);
      done = d;
      all = a;
    };
    const auto resident = load_resident(*device_, tiny.sweep, {notes, told});
    EXPECT_EQ(done, all);
    EXPECT_EQ(all + EmbeddingLookup::bytes_needed(), resident_bytes(tiny.sweep));
    Sweeper sweeper(*device_, tiny, *resident);
    sweeper.sweep();
    sweeper.run(2);
    resident->abandon_sweep();
    sweeper.sweep();
  }
}

TEST_F(StreamerTest, KeepsATiedTableOnce) {
  const TinyCheckpoint apart = make_tiny(dir_.path(), {.vocab = 3000});
  const std::size_t apart_bytes = resident_bytes(apart.sweep);
  const TinyCheckpoint tied = make_tiny(dir_.path(), {.vocab = 3000, .tied = true});
  EXPECT_LE(resident_bytes(tied.sweep) + 3000 * 64 * 2 - 4 * kReadAlignment, apart_bytes);
}

TEST_F(StreamerTest, StopsLoadingOnRequest) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  std::stop_source stop;
  Notes notes;
  stop.request_stop();
  EXPECT_THROW(load_resident(*device_, tiny.sweep, {notes, {}, stop.get_token()}), Stopped);
}

TEST_F(StreamerTest, LooksEmbeddingRowsUpWhereverTheTableIsAndRefusesTokensOutsideIt) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  StreamerOptions options;
  options.read_bytes = 4096;
  options.wrap_engine = with({.shorten = 0.4, .refuse = 0.1, .delay_us = 50}, 5);
  Residency at_rest = none_resident(tiny.sweep), on_disk = at_rest;
  at_rest.table = Tier::kHost;
  options.ring_bytes = least_ring(tiny.sweep, at_rest);
  Streamer lookup(*device_, tiny.sweep, at_rest, options);
  Streamer reader(*device_, tiny.sweep, on_disk, options);
  Notes notes;
  const auto resident = load_resident(*device_, tiny.sweep, {notes});
  const auto compute = device_->make_stream("compute");
  std::vector<TokenId> ids{96, 0, 5, 5};
  for (TokenId id = 0; id < 97; ++id) ids.push_back(96 - id);  // more than one batch
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::vector<std::byte>& table = tiny.content.at("model.embed_tokens.weight");
  for (WeightSource* source :
       {static_cast<WeightSource*>(&lookup), static_cast<WeightSource*>(&reader), resident.get()}) {
    std::vector<float> got(ids.size() * 64), expected(64);
    source->embedding().look_up(
        ids, *compute,
        TensorView(reinterpret_cast<std::byte*>(got.data()), DType::kF32, {count, 64}));
    compute->synchronize();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      dequantize_row(DType::kBF16, table.data() + static_cast<std::size_t>(ids[i]) * 128, expected);
      EXPECT_EQ(std::memcmp(got.data() + i * 64, expected.data(), 256), 0) << "row " << i;
    }
    for (const TokenId bad : {-1, 97}) {
      TensorView out(reinterpret_cast<std::byte*>(got.data()), DType::kF32, {1, 64});
      EXPECT_THROW(source->embedding().look_up(std::array{bad}, *compute, out), Error);
    }
  }
  EXPECT_GT(reader.totals().disk_bytes, 0u);
}

}  // namespace
}  // namespace canopy
