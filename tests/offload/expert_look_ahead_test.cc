// Experts that are read ahead change no byte, take no place, and come after those that are needed.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "offload/experts/expert_cache.h"
#include "tests/error_of.h"
#include "tests/offload/expert_sweeps.h"
#include "tests/offload/faulty_reads.h"

namespace canopy {
namespace {

using namespace test;

class ExpertLookAheadTest : public ExpertSweeps {
 protected:
  using Experts = std::vector<std::int32_t>;

  ExpertLookAheadTest() : ExpertSweeps(make_device({.threads = 2}), "qwen3_moe") {}
  std::unique_ptr<ExpertCache> make(std::size_t stay, const StreamerOptions& options = {}) {
    return std::make_unique<ExpertCache>(*device_, sweep_, least() + stay, options);
  }
  static void wait_until_there(const ExpertCache& cache, int layer, const Experts& experts) {
    for (const std::int32_t e : experts)
      while (!cache.is_there(layer, e)) std::this_thread::yield();
  }
};

TEST_F(ExpertLookAheadTest, WhatIsForetoldIsThereBeforeItIsAskedFor) {
  const auto cache = make(0);
  cache->want(layers_[0], Experts{0, 1, 2});
  cache->expect(layers_[1], Experts{3, 4});
  for (const std::int32_t e : {0, 1, 2}) cache->acquire(layers_[0], e, *compute_, {});
  wait_until_there(*cache, layers_[1], {3, 4});
  const std::uint64_t bytes = cache->totals().link.disk_bytes;
  run_layer(*cache, layers_[1], {3, 4, 5});
  expect_right_bytes();
  const ExpertTotals totals = cache->totals();
  EXPECT_EQ(totals.misses, 6u) << "a policy knows of what rows chose, not of guesses";
  EXPECT_EQ(totals.foreseen, 2u);
  EXPECT_EQ(totals.wasted, 0u);
  EXPECT_LT(totals.link.disk_bytes - bytes, 2 * ExpertCache::slot_bytes(sweep_)) << "only 5";
}

TEST_F(ExpertLookAheadTest, ReadsThatNoRowWantedAreCountedAsWasted) {
  const auto cache = make(0);
  cache->want(layers_[0], Experts{0, 1, 2});
  cache->expect(layers_[1], Experts{3, 4});
  for (const std::int32_t e : {0, 1, 2}) cache->acquire(layers_[0], e, *compute_, {});
  wait_until_there(*cache, layers_[1], {3, 4});
  run_layer(*cache, layers_[1], {4, 5, 6});
  EXPECT_FALSE(cache->is_there(layers_[1], 3)) << "nothing of it stays";
  EXPECT_EQ(cache->totals().foreseen, 1u);
  EXPECT_EQ(cache->totals().wasted, 1u);
  cache->want(layers_[0], Experts{0, 1, 2});
  cache->expect(layers_[1], Experts{3, 4});
  for (const std::int32_t e : {0, 1, 2}) cache->acquire(layers_[0], e, *compute_, {});
  wait_until_there(*cache, layers_[1], {3, 4});
  cache->abandon_sweep();
  EXPECT_EQ(cache->totals().wasted, 3u);
  run_sweep(*cache, 1);
  expect_right_bytes();
}

TEST_F(ExpertLookAheadTest, WhatIsNeededIsReadFirst) {
  const auto gate = std::make_shared<Gate>();
  const auto count = std::make_shared<ReadCount>();
  StreamerOptions options;
  options.wrap_engine = with({.hang = 0, .gate = gate, .count = count}, 1);
  const auto cache = make(8, options);
  const Experts chosen{0, 1, 2};
  std::uint64_t reads = 0;
  for (const std::int32_t e : chosen)
    reads += sweep_.experts[index_of(layers_[0], e)].read.extents.size();
  cache->want(layers_[0], chosen);
  cache->expect(layers_[1], Experts{3, 4});
  gate->wait_until_reached();
  EXPECT_EQ(count->asked, reads) << "nothing is read ahead while something is waited for";
  gate->open();
  for (const std::int32_t e : chosen) cache->acquire(layers_[0], e, *compute_, {});
  wait_until_there(*cache, layers_[1], {3, 4});
  run_layer(*cache, layers_[1], {3, 4, 5});
  expect_right_bytes();
}

/// Two caches, of which one is told of every expert there is.
TEST_F(ExpertLookAheadTest, DisplacesNothing) {
  for (std::size_t stay = 0; stay <= sweep_.experts.size(); stay += 4) {
    SCOPED_TRACE(stay);
    const auto plain = make(stay), foretold = make(stay);
    for (int sweep = 0; sweep < 60; ++sweep) {
      for (const int layer : layers_) {
        const Experts chosen = routes(sweep % 7 == 0 ? 5 : 1);
        run_layer(*plain, layer, chosen);
        run_layer(*foretold, layer, chosen, SIZE_MAX, {6, 5, 4, 3, 2, 1, 0});
      }
      expect_right_bytes();
      EXPECT_EQ(foretold->totals().hits, plain->totals().hits);
      EXPECT_EQ(foretold->totals().misses, plain->totals().misses);
      for (const ExpertLayout& one : sweep_.experts)
        EXPECT_EQ(foretold->is_there(one.layer, one.expert), plain->is_there(one.layer, one.expert))
            << "expert " << one.expert << " of layer " << one.layer;
    }
  }
}

/// Every size and kind of fault by seed; some sweeps end early, some caches too.
TEST_F(ExpertLookAheadTest, LosesNothingInTenThousandFaultedSweeps) {
  int sweeps = 0;
  std::uint64_t foreseen = 0, wasted = 0;
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
        run_foretold_sweep(*cache, 3, 1 + random_() % layers_.size());
        cache->abandon_sweep();
      } else {
        run_foretold_sweep(*cache, random_() % 8 == 0 ? 12 : 1);
        if (random_() % 2 == 0) cache->keep_rows(std::vector<std::int32_t>{0});
      }
      ASSERT_NO_FATAL_FAILURE(expect_right_bytes());
    }
    foreseen += cache->totals().foreseen, wasted += cache->totals().wasted;
    if (seed % 5 == 0) {  // and it goes with reads on their way
      cache->want(layers_[0], routes(4));
      cache->expect(layers_[1], routes(2));
    }
  }
  EXPECT_EQ(sweeps, 10'000);
  EXPECT_GT(foreseen, 1000u);
  EXPECT_GT(wasted, 1000u);
}

}  // namespace
}  // namespace canopy
