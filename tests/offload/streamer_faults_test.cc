// Whatever the disk, the file or the caller does: the right bytes, or the right error; never a
// hang.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "kernels/cpu/cpu_stream.h"
#include "src/base/error.h"
#include "tests/offload/sweeper.h"

namespace canopy {
namespace {

using namespace test;
using StreamerFaults = StreamerFixture;

TEST_F(StreamerFaults, DeliversTheRightBytesWhenReadsComeReorderedShortRefusedAndLate) {
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

/// Every ring, residency and kind of fault by seed; some sweeps end early, some streamers too.
TEST_F(StreamerFaults, LosesNothingInTenThousandFaultedSweeps) {
  int sweeps = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 1 + static_cast<int>(seed % 2),
                                                        .dim = 32,
                                                        .hidden = 32,
                                                        .files = 1 + static_cast<int>(seed % 2),
                                                        .seed = seed});
    StreamerOptions options;
    options.read_bytes = 4096u << seed % 2;
    options.queue_depth = 1 + seed % 9;
    options.io_uring = seed % 4 != 0;
    options.checksums = seed % 3 == 0;
    options.wrap_engine = with({.shorten = 0.2, .refuse = 0.02}, seed);
    const auto streamer = make(tiny, options, seed, 2 + seed % 4);
    Sweeper sweeper(*device_, tiny, *streamer, seed);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 200; ++i, ++sweeps) {
      if (random() % 16 != 0) {
        ASSERT_NO_FATAL_FAILURE(sweeper.sweep(true));
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(sweeper.run(random() % (sweeper.units() + 1), true));
      streamer->abandon_sweep();
    }
  }
  EXPECT_EQ(sweeps, 10'000);
}

/// Reads of another engine; once the gate is shut, none of them is over until it opens.
class GatedReads final : public ReadEngine {
 public:
  GatedReads(std::unique_ptr<ReadEngine> reads, std::shared_ptr<std::atomic<bool>> shut)
      : reads_(std::move(reads)), shut_(std::move(shut)) {}
  std::size_t depth() const override { return reads_->depth(); }
  void submit(std::span<const ReadRequest> requests) override { reads_->submit(requests); }
  std::size_t wait(std::span<ReadDone> done) override {
    shut_->wait(true);
    return reads_->wait(done);
  }

 private:
  std::unique_ptr<ReadEngine> reads_;
  std::shared_ptr<std::atomic<bool>> shut_;
};

TEST_F(StreamerFaults, AStopRequestEndsTheWaitForAUnitOfADiskThatDoesNotAnswer) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4});
  const auto shut = std::make_shared<std::atomic<bool>>(false);
  StreamerOptions options;
  options.wrap_engine = [&](std::unique_ptr<ReadEngine> reads) {
    return std::make_unique<GatedReads>(std::move(reads), shut);
  };
  const auto streamer = make(tiny, options);
  Sweeper sweeper(*device_, tiny, *streamer);
  for (std::size_t at = 0; at < sweeper.units(); ++at) {
    SCOPED_TRACE(at);
    sweeper.run(at, true);
    *shut = true;
    std::stop_source stop;
    const std::jthread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      stop.request_stop();
    });
    // As far as the ring was filled; then there is nothing to lend.
    EXPECT_THROW(
        {
          for (std::size_t i = at;; ++i)
            streamer->acquire(i % sweeper.units(), sweeper.compute(), stop.get_token());
        },
        Stopped);
    streamer->abandon_sweep();
    *shut = false;
    shut->notify_all();
    ASSERT_NO_FATAL_FAILURE(sweeper.sweep(true));
  }
}

TEST_F(StreamerFaults, ReportsAFailedReadWithUnitFileAndByteFromThenOn) {
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

TEST_F(StreamerFaults, ReportsAFileThatShrinksDuringTheRun) {
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
  // By the read that misses bytes, or by the size, whichever is seen first.
  EXPECT_TRUE(message.find("the file ends inside the weights") != std::string::npos ||
              message.find("was written to") != std::string::npos)
      << message;
  EXPECT_NE(message.find(file.string()), std::string::npos) << message;
}

TEST_F(StreamerFaults, MayBeDestroyedAtAnyMoment) {
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

TEST_F(StreamerFaults, StartsOverAtUnitZeroWhereverASweepIsAbandoned) {
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

TEST_F(StreamerFaults, StopsInTheMiddleOfAUnit) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.hidden = 8192});
  const auto count = std::make_shared<ReadCount>();
  const auto gate = std::make_shared<Gate>();
  StreamerOptions options;
  options.read_bytes = 4096;
  options.queue_depth = 4;
  options.wrap_engine = with({.hang = 100, .gate = gate, .count = count}, 1);  // an MLP's
  auto made = make(tiny, options);
  gate->wait_until_reached();
  std::atomic<int> stopping{0};
  std::thread stopper([&] {
    stopping = gettid();
    stopping.notify_all();
    made.reset();
  });
  stopping.wait(0);
  wait_until_asleep(stopping);  // it has asked the reader to stop, and waits for it
  const std::uint64_t at_stop = count->asked;
  gate->open();
  stopper.join();
  EXPECT_LE(count->asked - at_stop, 4u) << "a queue; an MLP takes 8192 * 64 * 2 * 3 / 4096 reads";
}

/// Changes one byte in the middle of a file. If `seen` its time of change is later by a second (the
/// clock of files may be too coarse to show it), else what it was.
void overwrite(const std::filesystem::path& file, bool seen) {
  struct stat before {};
  stat(file.c_str(), &before);
  const int descriptor = open(file.c_str(), O_RDWR);
  const auto middle = static_cast<off_t>(std::filesystem::file_size(file) / 2);
  unsigned char byte = 0;
  EXPECT_EQ(pread(descriptor, &byte, 1, middle), 1);
  byte ^= 1;
  EXPECT_EQ(pwrite(descriptor, &byte, 1, middle), 1);
  fsync(descriptor);
  timespec times[2] = {before.st_atim, before.st_mtim};
  times[1].tv_sec += seen ? 1 : 0;
  EXPECT_EQ(futimens(descriptor, times), 0);
  close(descriptor);
}

TEST_F(StreamerFaults, AReadThatHangsOnlyTakesItsTimeAndItIsSaidWhere) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const auto gate = std::make_shared<Gate>();
  StreamerOptions options;
  options.read_bytes = 4096;
  options.wrap_engine = with({.hang = 300, .gate = gate}, 1);
  const auto streamer = make(tiny, options);
  Sweeper sweeper(*device_, tiny, *streamer);
  Seconds hung{};
  std::thread helper([&, caller = gettid()] {
    gate->wait_until_reached();
    wait_until_asleep(caller);  // in acquire(): its other work waits for nobody
    const auto start = std::chrono::steady_clock::now();
    while (hung < Seconds(0.01)) hung = std::chrono::steady_clock::now() - start;
    gate->open();
  });
  for (bool reached = false; !reached;) {
    for (std::size_t i = 0; i < sweeper.units(); ++i) streamer->acquire(i, sweeper.compute());
    reached = gate->reached();
  }
  helper.join();
  EXPECT_GE(streamer->totals().stall, hung);
  for (int sweep = 0; sweep < 5; ++sweep) sweeper.sweep();
}

TEST_F(StreamerFaults, GoesOnWithTheOldFileWhenAnotherTakesItsName) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const auto streamer = make(tiny);
  Sweeper sweeper(*device_, tiny, *streamer);
  sweeper.sweep();
  const std::filesystem::path file = tiny.checkpoint.files()[0], other = dir_.path() / "other";
  write_file(other, random_bytes(std::filesystem::file_size(file), 99));
  std::filesystem::rename(other, file);
  for (int sweep = 0; sweep < 5; ++sweep) sweeper.sweep();
}

TEST_F(StreamerFaults, ReportsAFileThatIsWrittenToDuringTheRun) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {});
  const std::filesystem::path file = tiny.checkpoint.files()[0];
  const auto streamer = make(tiny);
  Sweeper sweeper(*device_, tiny, *streamer);
  sweeper.sweep();
  overwrite(file, true);
  const std::string message = error_of([&] {
    for (;;) sweeper.sweep();
  });
  EXPECT_NE(message.find(file.string() + " was written to while it was in use"), std::string::npos)
      << message;
}

TEST_F(StreamerFaults, ChecksumsFindBytesThatChangeUnseen) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 2});
  const std::filesystem::path file = tiny.checkpoint.files()[0];
  StreamerOptions options;
  const auto reads = std::make_shared<ReadCount>();
  options.checksums = true;
  options.wrap_engine = with({.count = reads}, 1);
  const auto streamer = make(tiny, options);
  Sweeper sweeper(*device_, tiny, *streamer);
  for (int sweep = 0; sweep < 3; ++sweep) sweeper.sweep();
  EXPECT_GT(streamer->totals().checksums.count(), 0);
  // Once the ring is full nothing is read, so nobody sees the time while it is wrong.
  wait_until_full(*reads);
  overwrite(file, false);
  const auto compute = device_->make_stream("compute");
  const std::string message = error_of([&] {
    for (;;)
      for (std::size_t i = 0; i < sweeper.units(); ++i) streamer->acquire(i, *compute);
  });
  EXPECT_NE(message.find("is not what it was when it was first read"), std::string::npos)
      << message;
  EXPECT_NE(message.find(file.string() + " bytes "), std::string::npos) << message;
}

TEST_F(StreamerFaults, ChecksumsFindOneWrongBitFromTheDisk) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 2});
  for (std::uint64_t flip = 200; flip < 210; ++flip) {
    StreamerOptions options;
    options.read_bytes = 4096;
    options.checksums = true;
    options.wrap_engine = with({.flip = flip}, flip);
    const auto streamer = make(tiny, options);
    const auto compute = device_->make_stream("compute");
    const std::string message = error_of([&] {
      for (int sweep = 0; sweep < 50; ++sweep)
        for (std::size_t i = 0; i < streamer->units().size(); ++i) streamer->acquire(i, *compute);
    });
    EXPECT_NE(message.find("is not what it was"), std::string::npos) << message;
  }
}

TEST_F(StreamerFaults, AnExceptionInComputeLeavesItUsable) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 4});
  const auto streamer = make(tiny);
  Sweeper sweeper(*device_, tiny, *streamer);
  for (std::size_t at = 0; at < sweeper.units(); ++at) {
    sweeper.sweep();
    // On the device: the work after it is skipped, its memory is free all the same.
    auto& compute = dynamic_cast<cpu::CpuStream&>(sweeper.compute());
    for (std::size_t i = 0; i < sweeper.units(); ++i) {
      const UnitLease lease = streamer->acquire(i, compute);
      if (i == at) compute.enqueue([] { throw Error("the product failed"); });
    }
    const std::string failed = error_of([&] { compute.synchronize(); });
    EXPECT_NE(failed.find("the product failed"), std::string::npos) << failed;
    sweeper.sweep();
    // On the host, with a lease in hand.
    const std::string message = error_of([&] {
      for (std::size_t i = 0;; ++i) {
        const UnitLease lease = streamer->acquire(i, compute);
        if (i == at) throw Error("the host failed");
      }
    });
    EXPECT_NE(message.find("the host failed"), std::string::npos) << message;
    streamer->abandon_sweep();
    sweeper.sweep();
  }
}

}  // namespace
}  // namespace canopy
