#include "offload/streamer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "kernels/convert.h"
#include "src/base/error.h"
#include "tests/offload/faulty_reads.h"
#include "tests/offload/tiny_checkpoint.h"

namespace canopy {
namespace {

using test::Faults;
using test::FaultyReads;
using test::make_tiny;
using test::TinyCheckpoint;
using test::TinyShape;

std::function<std::unique_ptr<ReadEngine>(std::unique_ptr<ReadEngine>)> with(Faults faults,
                                                                             std::uint64_t seed) {
  return [=](std::unique_ptr<ReadEngine> engine) {
    return std::make_unique<FaultyReads>(std::move(engine), faults, seed);
  };
}

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

/// Plays the forward pass: copies each unit's weights out on the compute stream, gives the lease
/// back while the copy is still queued, and compares at the end of the sweep.
class Sweeper {
 public:
  Sweeper(Device& device, const TinyCheckpoint& tiny, WeightSource& source, std::uint64_t seed = 0)
      : device_(device),
        source_(source),
        layouts_(lay_out_units(tiny.checkpoint, kReadAlignment)),
        compute_(device.make_stream("compute")),
        random_(seed),
        ballast_(1 << 20),
        scratch_(1 << 20) {
    for (const UnitLayout& layout : layouts_) {
      const Unit& unit = layout.unit;
      for (const UnitTensor& matrix : layout.matrices) {
        std::vector<std::byte> bytes = tiny.content.at(matrix.tensor.name);
        if (unit.part == Part::kHead) {
          const auto row = row_bytes(matrix.tensor.dtype, matrix.tensor.shape[1]);
          const auto begin = bytes.begin() + unit.first_row * static_cast<std::ptrdiff_t>(row);
          bytes = {begin, begin + unit.rows * static_cast<std::ptrdiff_t>(row)};
        }
        expected_.push_back(std::move(bytes));
      }
      for (const UnitTensor& vector : layout.vectors) {
        std::vector<float> values(static_cast<std::size_t>(vector.tensor.shape[0]));
        dequantize_row(vector.tensor.dtype, tiny.content.at(vector.tensor.name).data(), values);
        const auto* const data = reinterpret_cast<const std::byte*>(values.data());
        expected_.emplace_back(data, data + values.size() * sizeof(float));
      }
    }
    for (const auto& bytes : expected_) received_.emplace_back(bytes.size());
  }
  ~Sweeper() { compute_->synchronize(); }

  /// Acquires units [0, count).
  void run(std::size_t count, bool random_delays = false) {
    std::size_t tensor = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const UnitLease lease = source_.acquire(i, *compute_);
      if (random_delays) delay();
      const auto receive = [&](const UnitTensor& from) {
        const ConstTensorView view = (*lease).*from.field;
        std::vector<std::byte>& to = received_[tensor++];
        ASSERT_EQ(view.bytes(), to.size()) << from.tensor.name;
        device_.download(*compute_, to, view.data());
      };
      for (const UnitTensor& matrix : layouts_[i].matrices) receive(matrix);
      for (const UnitTensor& vector : layouts_[i].vectors) receive(vector);
    }
    compute_->synchronize();
    for (std::size_t i = 0; i < tensor; ++i) {
      ASSERT_TRUE(received_[i] == expected_[i]) << "tensor " << i << " of the sweep";
      std::fill(received_[i].begin(), received_[i].end(), std::byte{0});
    }
  }
  void sweep(bool random_delays = false) { run(layouts_.size(), random_delays); }
  std::size_t units() const { return layouts_.size(); }
  Stream& compute() { return *compute_; }

 private:
  /// Now the host is late, now the device.
  void delay() {
    const std::uint64_t kind = random_() % 8;
    if (kind == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
    if (kind == 1) device_.download(*compute_, scratch_, ballast_.data());
  }

  Device& device_;
  WeightSource& source_;
  const std::vector<UnitLayout> layouts_;
  const std::unique_ptr<Stream> compute_;
  std::mt19937_64 random_;
  std::vector<std::byte> ballast_, scratch_;
  std::vector<std::vector<std::byte>> expected_, received_;
};

/// Any units at rest but one (seed 0: none), the table by chance, room for `units` of the largest.
struct Place {
  Residency residency;
  std::size_t ring_bytes = 0;

  Place(const TinyCheckpoint& tiny, std::uint64_t seed, std::size_t units) {
    const std::vector<UnitLayout> layouts = lay_out_units(tiny.checkpoint, kReadAlignment);
    residency = none_resident(layouts);
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < layouts.size(); ++i)
      residency.unit[i] = seed != 0 && random() % 3 == 0;
    residency.unit[random() % layouts.size()] = false;
    residency.table = random() % 2 == 0;
    ring_bytes = least_ring(layouts, residency) / 2 * units;
  }
};

class StreamerTest : public testing::Test {
 protected:
  std::unique_ptr<Streamer> make(const TinyCheckpoint& tiny, StreamerOptions options = {},
                                 std::uint64_t residency = 0, std::size_t units = 2) {
    const Place place(tiny, residency, units);
    options.ring_bytes = place.ring_bytes;
    return std::make_unique<Streamer>(*device_, tiny.checkpoint, place.residency, options);
  }

  const std::unique_ptr<Device> device_ = make_device({.kind = "cpu", .threads = 1});
  const TempDir dir_;
};

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
                              .seed = seed};
        const TinyCheckpoint tiny = make_tiny(dir_.path(), shape);
        StreamerOptions options;
        options.read_bytes = read_bytes;
        options.queue_depth = 1 + seed % 7;
        options.io_uring = seed % 3 != 0;
        const Place place(tiny, seed % 3, ring_units);
        const auto streamer = make(tiny, options, seed % 3, ring_units);
        EXPECT_EQ(streamer->held_bytes(),
                  place.ring_bytes +
                      Streamer::resting_bytes(tiny.checkpoint,
                                              lay_out_units(tiny.checkpoint, kReadAlignment),
                                              place.residency));
        Sweeper sweeper(*device_, tiny, *streamer);
        for (int sweep = 0; sweep < 5; ++sweep) sweeper.sweep();
      }
}

TEST_F(StreamerTest, DeliversTheRightBytesWhenReadsComeReorderedShortRefusedAndLate) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const TinyCheckpoint tiny = make_tiny(
        dir_.path(), {.layers = 3, .files = 1 + static_cast<int>(seed % 3), .seed = seed});
    StreamerOptions options;
    options.read_bytes = 4096u << seed % 4;
    options.queue_depth = 1 + seed % 9;
    options.wrap_engine = with({.shorten = 0.4, .refuse = 0.1, .delay_us = 50}, seed);
    const auto streamer = make(tiny, options, seed, 2 + seed % 4);
    Sweeper sweeper(*device_, tiny, *streamer, seed);
    for (int sweep = 0; sweep < 5; ++sweep) sweeper.sweep(true);
  }
}

TEST_F(StreamerTest, RunsThousandsOfSweepsWithRandomTiming) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 1, .dim = 32, .hidden = 32});
  StreamerOptions options;
  options.read_bytes = 4096;
  options.wrap_engine = with({.shorten = 0.2, .refuse = 0.01}, 7);
  const auto made = make(tiny, options);
  Streamer& streamer = *made;
  Sweeper sweeper(*device_, tiny, streamer, 7);
  for (int sweep = 0; sweep < 3000; ++sweep) sweeper.sweep(true);
}

TEST_F(StreamerTest, ReportsAFailedReadWithUnitFileAndByteFromThenOn) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const std::string file = tiny.checkpoint.files()[0].string();
  for (std::uint64_t good_reads = 0; good_reads < 120; good_reads += 7) {
    SCOPED_TRACE(good_reads);
    StreamerOptions options;
    options.read_bytes = 4096;
    options.wrap_engine = with({.fail_from = good_reads}, good_reads);
    std::unique_ptr<Streamer> streamer;
    const std::string at_start = error_of([&] { streamer = make(tiny, options, good_reads); });
    std::string message = at_start;
    if (streamer) {
      Sweeper sweeper(*device_, tiny, *streamer);
      message = error_of([&] {
        for (;;) sweeper.sweep();
      });
      EXPECT_NE(message.find("waiting for"), std::string::npos) << message;
      streamer->abandon_sweep();
      EXPECT_NE(error_of([&] { streamer->acquire(0, sweeper.compute()); }), "") << "still broken";
    }
    EXPECT_NE(message.find(file + " at byte "), std::string::npos) << message;
    EXPECT_NE(message.find("Input/output error"), std::string::npos) << message;
  }
}

TEST_F(StreamerTest, ReportsAFileThatShrinksDuringTheRun) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const std::filesystem::path file = tiny.checkpoint.files()[0];
  const auto made = make(tiny);
  Streamer& streamer = *made;
  Sweeper sweeper(*device_, tiny, streamer);
  sweeper.sweep();
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const std::string message = error_of([&] {
    const auto compute = device_->make_stream("compute");  // what is read by now may be anything
    for (;;)
      for (std::size_t i = 0; i < streamer.units().size(); ++i) streamer.acquire(i, *compute);
  });
  EXPECT_NE(message.find("the file ends inside the weights"), std::string::npos) << message;
  EXPECT_NE(message.find(file.string()), std::string::npos) << message;
}

TEST_F(StreamerTest, StartsOverAtUnitZeroWhereverASweepIsAbandoned) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4, .seed = seed});
    StreamerOptions options;
    options.read_bytes = 8192;
    options.wrap_engine = with({.shorten = 0.1, .delay_us = 20}, seed);
    const auto streamer = make(tiny, options, seed, 2 + seed % 5);
    Sweeper sweeper(*device_, tiny, *streamer, seed);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 60; ++round) {
      sweeper.run(random() % (sweeper.units() + 1), true);
      for (std::uint64_t times = random() % 3; times > 0; --times) streamer->abandon_sweep();
      streamer->abandon_sweep();
      if (round % 8 == 0) sweeper.sweep(true);
    }
  }
}

TEST_F(StreamerTest, MayBeDestroyedAtAnyMoment) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4, .hidden = 1024, .files = 2});
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    StreamerOptions options;
    options.read_bytes = 16'384;
    options.io_uring = seed % 2 == 0;
    if (seed % 3 == 0) options.wrap_engine = with({.shorten = 0.2, .delay_us = 100}, seed);
    const auto streamer = make(tiny, options, seed, 2 + seed % 3);
    Sweeper sweeper(*device_, tiny, *streamer, seed);
    sweeper.run(seed % (sweeper.units() + 1), true);
  }
}

TEST_F(StreamerTest, StopsInTheMiddleOfAUnit) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.hidden = 8192});
  const auto asked = std::make_shared<std::atomic<std::uint64_t>>(0);
  StreamerOptions options;
  options.read_bytes = 4096;
  options.queue_depth = 4;
  options.wrap_engine = with({.delay_us = 2000, .asked = asked}, 1);
  std::uint64_t at_stop = 0;
  {
    const auto made = make(tiny, options);
    const std::uint64_t at_start = *asked;
    while (*asked < at_start + 40) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    at_stop = *asked;  // in the middle of the first MLP
  }
  EXPECT_LE(*asked - at_stop, 64u) << "an MLP takes " << 8192 * 64 * 4 / 4096 << " reads and more";
}

TEST_F(StreamerTest, WaitsForQueuedWorkOnLentWeightsBeforeItGoes) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const std::vector<UnitLayout> layouts = lay_out_units(tiny.checkpoint, kReadAlignment);
  const UnitTensor& wq = layouts[0].matrices[0];
  std::vector<std::byte> ballast(1 << 24), scratch(1 << 24), received(wq.tensor.bytes);
  const auto compute = device_->make_stream("compute");
  {
    const auto made = make(tiny);
    Streamer& streamer = *made;
    const UnitLease lease = streamer.acquire(0, *compute);
    device_->download(*compute, scratch, ballast.data());
    device_->download(*compute, received, lease->wq.data());
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
  const Residency all = all_resident(lay_out_units(tiny.checkpoint, kReadAlignment));
  EXPECT_THROW(Streamer(*device_, tiny.checkpoint, all, {.ring_bytes = 1 << 20}), Error);
}

TEST_F(StreamerTest, PrefetchesTheNextSweepWhileNobodyAsksAndNoMoreThanTheRingHolds) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4});
  StreamerOptions options;
  const auto made = make(tiny, options, 0, 3);
  Streamer& streamer = *made;
  Sweeper sweeper(*device_, tiny, streamer);
  sweeper.sweep();
  const std::vector<UnitLayout> layouts = lay_out_units(tiny.checkpoint, kReadAlignment);
  std::uint64_t once = 0;
  for (const UnitLayout& layout : layouts) once += layout.read.useful_bytes;
  const auto idle_after = [&](std::uint64_t bytes) {
    for (std::uint64_t last = 0; last < bytes || last != streamer.totals().disk_bytes;) {
      last = streamer.totals().disk_bytes;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return streamer.totals().disk_bytes;
  };
  const std::uint64_t ahead = idle_after(once + layouts[0].read.useful_bytes);  // else: time-out
  EXPECT_LE(ahead, once + 2 * streamer.held_bytes()) << "tables, one sweep, one ring";
  sweeper.sweep();
}

TEST_F(StreamerTest, CountsWhatASweepReadAndWhereItsTimeWent) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 6});
  StreamerOptions options;
  options.wrap_engine = with({.delay_us = 500}, 1);
  const auto made = make(tiny, options);
  Streamer& streamer = *made;
  Sweeper sweeper(*device_, tiny, streamer);
  std::uint64_t once = 0;
  for (const UnitLayout& layout : lay_out_units(tiny.checkpoint, kReadAlignment))
    once += layout.read.slab_bytes;
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
    EXPECT_LE(cached_share(file), 0.01);  // without O_DIRECT each page is dropped behind its read
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
    const auto resident = load_resident(*device_, tiny.checkpoint, notes, [&](auto d, auto a) {
      EXPECT_LE(d, a);
      done = d;
      all = a;
    });
    EXPECT_EQ(done, all);
    EXPECT_EQ(resident->held_bytes(), resident_bytes(tiny.checkpoint));
    Sweeper sweeper(*device_, tiny, *resident);
    sweeper.sweep();
    sweeper.run(2);
    resident->abandon_sweep();
    sweeper.sweep();
  }
}

TEST_F(StreamerTest, KeepsATiedTableOnce) {
  const TinyCheckpoint apart = make_tiny(dir_.path(), {.vocab = 3000});
  const std::size_t apart_bytes = resident_bytes(apart.checkpoint);
  const TinyCheckpoint tied = make_tiny(dir_.path(), {.vocab = 3000, .tied = true});
  EXPECT_LE(resident_bytes(tied.checkpoint) + 3000 * 64 * 2 - 4 * kReadAlignment, apart_bytes);
}

TEST_F(StreamerTest, StopsLoadingOnRequest) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  std::stop_source stop;
  Notes notes;
  stop.request_stop();
  EXPECT_THROW(load_resident(*device_, tiny.checkpoint, notes, {}, stop.get_token()), Stopped);
}

TEST_F(StreamerTest, LooksEmbeddingRowsUpWhereverTheTableIsAndRefusesTokensOutsideIt) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  StreamerOptions options;
  options.read_bytes = 4096;
  options.wrap_engine = with({.shorten = 0.4, .refuse = 0.1, .delay_us = 50}, 5);
  const std::vector<UnitLayout> layouts = lay_out_units(tiny.checkpoint, kReadAlignment);
  Residency at_rest = none_resident(layouts), on_disk = at_rest;
  at_rest.table = true;
  options.ring_bytes = least_ring(layouts, at_rest);
  Streamer lookup(*device_, tiny.checkpoint, at_rest, options);
  Streamer reader(*device_, tiny.checkpoint, on_disk, options);
  Notes notes;
  const auto resident = load_resident(*device_, tiny.checkpoint, notes);
  const auto compute = device_->make_stream("compute");
  std::vector<TokenId> ids{96, 0, 5, 5};
  for (TokenId id = 0; id < 97; ++id) ids.push_back(96 - id);  // more than one batch
  const auto count = static_cast<std::int64_t>(ids.size());
  const std::vector<std::byte>& table = tiny.content.at("model.embed_tokens.weight");
  for (WeightSource* source :
       {static_cast<WeightSource*>(&lookup), static_cast<WeightSource*>(&reader), resident.get()}) {
    std::vector<float> got(ids.size() * 64), expected(64);
    source->embed(ids, *compute,
                  TensorView(reinterpret_cast<std::byte*>(got.data()), DType::kF32, {count, 64}));
    compute->synchronize();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      dequantize_row(DType::kBF16, table.data() + static_cast<std::size_t>(ids[i]) * 128, expected);
      EXPECT_EQ(std::memcmp(got.data() + i * 64, expected.data(), 256), 0) << "row " << i;
    }
    for (const TokenId bad : {-1, 97}) {
      TensorView out(reinterpret_cast<std::byte*>(got.data()), DType::kF32, {1, 64});
      EXPECT_THROW(source->embed(std::array{bad}, *compute, out), Error);
    }
  }
  EXPECT_GT(reader.totals().disk_bytes, 0u);
}

}  // namespace
}  // namespace canopy
