// Experts out of a cache have the bytes of the file, whatever the disk, the sweeps or the caller
// do.
#include "offload/experts/expert_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "tests/error_of.h"
#include "tests/offload/expert_sweeps.h"
#include "tests/offload/faulty_reads.h"

namespace canopy {
namespace {

using namespace test;

class ExpertCacheTest : public ExpertSweeps {
 protected:
  explicit ExpertCacheTest(const char* model = "qwen3_moe")
      : ExpertSweeps(make_device({.threads = 2}), model) {}
  std::unique_ptr<ExpertCache> make(std::size_t stay, const StreamerOptions& options = {}) {
    return std::make_unique<ExpertCache>(*device_, sweep_, least() + stay, options);
  }
};

/// Bytes of anonymous memory that this process has.
std::size_t anonymous_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("Anonymous:")) return std::stoull(line.substr(10)) * 1024;
  ADD_FAILURE() << "the kernel does not say";
  return 0;
}

TEST_F(ExpertCacheTest, LendsTheBytesOfTheFileAtEverySize) {
  for (std::size_t stay = 0; stay <= sweep_.experts.size(); stay += 3) {
    SCOPED_TRACE(stay);
    StreamerOptions options;
    options.read_bytes = 4096u << stay % 3;
    options.queue_depth = 1 + stay % 5;
    options.io_uring = stay % 2 == 0;
    const auto cache = make(stay, options);
    asked_ = 0;
    for (const std::size_t rows : {1, 2, 9, 1, 1, 30, 1}) run_sweep(*cache, rows);
    expect_right_bytes();
    const ExpertTotals totals = cache->totals();
    EXPECT_EQ(totals.hits + totals.misses, asked_);
    if (stay == 0) {
      EXPECT_EQ(totals.hits, 0u);
    }
    if (stay >= sweep_.experts.size()) {
      EXPECT_LE(totals.misses, sweep_.experts.size());
    }
  }
}

TEST_F(ExpertCacheTest, ReadsWhatItMissesAndNothingElse) {
  for (const std::size_t stay : {0u, 4u, 9u}) {
    const auto cache = make(stay);
    for (int sweep = 0; sweep < 20; ++sweep) run_sweep(*cache, 1);
    expect_right_bytes();
    const ExpertTotals totals = cache->totals();
    const std::size_t bytes = sweep_.experts[0].read.slab_bytes;  // all are of one size, or a page
    EXPECT_NEAR(static_cast<double>(totals.link.disk_bytes),
                static_cast<double>(totals.misses * bytes),
                static_cast<double>(totals.misses * 3 * kReadAlignment));
    EXPECT_GT(totals.misses, 0u);
  }
}

TEST_F(ExpertCacheTest, AsksForAllThatALayerLacksAtOnce) {
  const auto gate = std::make_shared<Gate>();
  const auto count = std::make_shared<ReadCount>();
  StreamerOptions options;
  options.wrap_engine = with({.hang = 0, .gate = gate, .count = count}, 1);
  const auto cache = make(8, options);
  const std::vector<std::int32_t> chosen = routes(1);
  std::uint64_t reads = 0;
  for (const std::int32_t e : chosen)
    reads += sweep_.experts[index_of(layers_[0], e)].read.extents.size();
  cache->want(layers_[0], chosen);
  gate->wait_until_reached();
  EXPECT_EQ(count->asked, reads) << "before the first has come";
  gate->open();
  for (const std::int32_t e : chosen) cache->acquire(layers_[0], e, *compute_, {});
}

TEST_F(ExpertCacheTest, KeepsWhatBecameText) {
  const auto cache = make(layers_.size() * 3);  // three of each layer
  const std::vector<std::int32_t> kept{0, 1, 2}, rejected{3, 4, 5};
  std::vector<std::int32_t> both = kept;
  both.insert(both.end(), rejected.begin(), rejected.end());
  for (int i = 0; i < 4; ++i) {
    for (const int layer : layers_) run_layer(*cache, layer, both);
    cache->keep_rows(std::vector<std::int32_t>{0});
  }
  for (const int layer : layers_) run_layer(*cache, layer, {4, 5, 6});
  cache->keep_rows({});
  const ExpertTotals before = cache->totals();
  for (const int layer : layers_) run_layer(*cache, layer, kept);
  expect_right_bytes();
  EXPECT_EQ((cache->totals() - before).hits, 0u) << "the last three had the places";
  for (const int layer : layers_) run_layer(*cache, layer, {0, 1, 6});
  for (const int layer : layers_) run_layer(*cache, layer, {0, 1, 2});
  EXPECT_GE((cache->totals() - before).hits, 4 * layers_.size());
  expect_right_bytes();
}

/// Every size and kind of fault by seed; some sweeps end early, some caches too.
TEST_F(ExpertCacheTest, LosesNothingInTenThousandFaultedSweeps) {
  int sweeps = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    StreamerOptions options;
    options.read_bytes = 4096u << seed % 2;
    options.queue_depth = 1 + seed % 9;
    options.io_uring = seed % 4 != 0;
    options.checksums = seed % 3 == 0;
    options.wrap_engine =
        with({.shorten = 0.2, .refuse = 0.02, .delay_us = seed % 10 == 0 ? 50 : 0}, seed);
    const auto cache = make(seed % (sweep_.experts.size() + 1), options);
    for (int i = 0; i < 200; ++i, ++sweeps) {
      if (random_() % 16 == 0) {
        const std::size_t layer = random_() % layers_.size();
        for (std::size_t l = 0; l < layer; ++l) run_layer(*cache, layers_[l], routes(2));
        run_layer(*cache, layers_[layer], routes(3), random_() % 3);
        cache->abandon_sweep();
      } else {
        run_sweep(*cache, random_() % 8 == 0 ? 12 : 1);
        if (random_() % 2 == 0) cache->keep_rows(std::vector<std::int32_t>{0});
      }
      ASSERT_NO_FATAL_FAILURE(expect_right_bytes());
    }
    if (seed % 5 == 0) cache->want(layers_[0], routes(4));  // and it goes with reads on their way
  }
  EXPECT_EQ(sweeps, 10'000);
}

TEST_F(ExpertCacheTest, AReadThatFailsNamesFileLayerAndExpert) {
  StreamerOptions options;
  options.wrap_engine = with({.fail_from = 0}, 1);
  const auto cache = make(3, options);
  cache->want(layers_[0], std::vector<std::int32_t>{1, 4, 6});
  const std::string error = error_of([&] { cache->acquire(layers_[0], 1, *compute_, {}); });
  for (const char* part : {"model.safetensors at byte", "expert ", " of layer 0", "failed"})
    EXPECT_NE(error.find(part), std::string::npos) << part << " is not in " << error;
  EXPECT_NE(error_of([&] { cache->acquire(layers_[0], 4, *compute_, {}); }), "") << "from now on";
}

TEST_F(ExpertCacheTest, AStopEndsTheWait) {
  const auto gate = std::make_shared<Gate>();
  StreamerOptions options;
  options.wrap_engine = with({.hang = 0, .gate = gate}, 1);
  const auto cache = make(3, options);
  std::stop_source stop;
  cache->want(layers_[0], std::vector<std::int32_t>{1, 4, 6});
  std::thread stopper([&] {
    gate->wait_until_reached();
    stop.request_stop();
  });
  EXPECT_THROW(cache->acquire(layers_[0], 1, *compute_, stop.get_token()), Stopped);
  stopper.join();
  cache->abandon_sweep();
  gate->open();
  run_sweep(*cache, 1);
  expect_right_bytes();
}

TEST_F(ExpertCacheTest, ABitThatDiffersFromTheFirstTimeEndsTheRun) {
  StreamerOptions options;
  options.checksums = true;
  options.queue_depth = 1;
  options.wrap_engine = with({.flip = 60}, 1);
  const auto cache = make(0, options);
  const std::string error = error_of([&] {
    for (int i = 0; i < 40; ++i)
      for (const int layer : layers_) run_layer(*cache, layer, {0, 1, 2});
  });
  EXPECT_NE(error.find("is not what it was when it was first read"), std::string::npos) << error;
  compute_->synchronize();
}

TEST_F(ExpertCacheTest, AFileThatIsWrittenToEndsTheRun) {
  const auto cache = make(0);
  run_sweep(*cache, 1);
  const int file = open(sweep_.files[0].c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(file, "x", 1, 0), 1);
  close(file);
  EXPECT_NE(error_of([&] { run_sweep(*cache, 1); }).find("model.safetensors"), std::string::npos);
  compute_->synchronize();
}

TEST_F(ExpertCacheTest, LendsTheBytesOfTheFileWhateverSlotsComeAndGo) {
  const std::size_t most = least() + sweep_.experts.size();
  for (const bool faults : {false, true}) {
    StreamerOptions options;
    if (faults) options.wrap_engine = with({.shorten = .2, .refuse = .1, .delay_us = 300}, 7);
    ExpertCache cache(*device_, sweep_, {least() + 3, least() + 1, most}, options);
    for (int sweep = 0; sweep < 200; ++sweep) {
      if (sweep % 5 == 4) {  // given up, with reads on their way
        run_layer(cache, layers_[0], routes(3), 1);
        cache.abandon_sweep();
      } else {
        run_sweep(cache, 1 + sweep % 3);
      }
      compute_->synchronize();
      const std::size_t slots = least() + 1 + random_() % (most - least());
      cache.resize(slots);
      ASSERT_EQ(cache.slots(), slots);
      if (sweep % 20 == 0) expect_right_bytes();
    }
    expect_right_bytes();
    cache.resize(most);
    for (int sweep = 0; sweep < 20; ++sweep) run_sweep(cache, 9);  // all are there from now on
    const ExpertTotals before = cache.totals();
    run_sweep(cache, 9);
    EXPECT_EQ(cache.totals().misses, before.misses);
    compute_->synchronize();
    EXPECT_THROW(cache.resize(least()), Error);
    EXPECT_THROW(cache.resize(most + 1), Error);
    expect_right_bytes();
  }
}

TEST_F(ExpertCacheTest, SlotsThatGoGiveTheirMemoryBack) {
  const std::size_t experts = sweep_.experts.size();
  ExpertCache cache(*device_, sweep_, {least() + experts, least(), least() + experts}, {});
  for (int sweep = 0; sweep < 20; ++sweep) run_sweep(cache, 9);  // all are there
  expect_right_bytes();
  // Experts that least() slots cannot hold are in others, the smallest ones perhaps.
  std::vector<std::size_t> bytes;
  for (const ExpertLayout& expert : sweep_.experts) bytes.push_back(expert.read.slab_bytes);
  std::ranges::sort(bytes);
  const auto gone = bytes.begin() + static_cast<std::ptrdiff_t>(experts - least());
  const std::size_t freed = std::accumulate(bytes.begin(), gone, std::size_t{0});
  ASSERT_GT(freed, 0U);
  const std::size_t before = anonymous_bytes();
  cache.resize(least());
  EXPECT_LE(anonymous_bytes() + freed * 9 / 10, before);
}

TEST_F(ExpertCacheTest, RefusesFewerSlotsThanALayerNeedsAndWhatNobodyChose) {
  EXPECT_THROW(ExpertCache(*device_, sweep_, least() - 1, {}), Error);
  const auto cache = make(0);
  cache->want(layers_[0], std::vector<std::int32_t>{1, 4, 6});
  EXPECT_THROW(cache->acquire(layers_[0], 2, *compute_, {}), Error);
}

}  // namespace
}  // namespace canopy
