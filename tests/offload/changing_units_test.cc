// Units that stay and go again, between sweeps: what is lent is the file's bytes all the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "offload/residency.h"
#include "offload/streamer.h"
#include "src/machine/process_memory.h"
#include "tests/offload/sweeper.h"

namespace canopy {
namespace {

using namespace test;

class ChangingUnits : public StreamerFixture {
 protected:
  std::unique_ptr<Streamer> make_changing(const TinyCheckpoint& tiny, StreamerOptions options,
                                          std::uint64_t seed, std::size_t ring_units) {
    const Place place(tiny, seed, ring_units);
    options.ring_bytes = least_ring(tiny.sweep, none_resident(tiny.sweep)) / 2 * ring_units;
    options.units_change = true;
    return std::make_unique<Streamer>(*device_, tiny.sweep, place.residency, options);
  }
  static std::vector<std::size_t> of_tier(const TinyCheckpoint& tiny, const Streamer& streamer,
                                          Tier tier) {
    const Residency now = streamer.residency(), fixed = fixed_part(tiny.sweep, now);
    std::vector<std::size_t> units;
    for (std::size_t i = 0; i < now.unit.size(); ++i)
      if (now.unit[i] == tier && fixed.unit[i] == Tier::kDisk &&
          tiny.sweep.units[i].read.slab_bytes > 0)
        units.push_back(i);
    return units;
  }
};

/// Changes units by chance, and runs sweeps that may end early. One unit travels in any case.
void change_and_sweep(const TinyCheckpoint& tiny, Streamer& streamer, Sweeper& sweeper,
                      std::mt19937_64& random, int sweeps) {
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    for (std::uint64_t change = random() % 4; change-- > 0;) {
      const Residency now = streamer.residency(), fixed = fixed_part(tiny.sweep, now);
      std::vector<std::size_t> rest, travel;
      for (std::size_t i = 0; i < now.unit.size(); ++i) {
        if (tiny.sweep.units[i].read.slab_bytes == 0 || fixed.unit[i] == Tier::kHost) continue;
        (now.unit[i] == Tier::kHost ? rest : travel).push_back(i);
      }
      if (random() % 2 == 0 && !rest.empty())
        streamer.evict(rest[random() % rest.size()]);
      else if (travel.size() > 1)
        streamer.keep(travel[random() % travel.size()]);
    }
    if (random() % 5 == 0) {
      sweeper.run(random() % sweeper.units(), true);
      streamer.abandon_sweep();
    } else {
      sweeper.sweep(random() % 2 == 0);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_F(ChangingUnits, LendTheSameBytesWhateverComesAndGoes) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    const TinyShape shape{.layers = 1 + static_cast<int>(seed % 5),
                          .files = 1 + static_cast<int>(seed % 2),
                          .tied = seed % 3 == 0,
                          .bias = seed % 2 == 0,
                          .seed = seed,
                          .unequal = seed % 4 == 0};
    const TinyCheckpoint tiny = make_tiny(dir_.path(), shape);
    StreamerOptions options;
    options.read_bytes = seed % 2 == 0 ? 4096 : 1 << 20;
    options.checksums = seed % 5 == 0;
    const auto streamer = make_changing(tiny, options, seed, 2 + seed % 4 * 7);
    Sweeper sweeper(*device_, tiny, *streamer, seed);
    std::mt19937_64 random(seed);
    change_and_sweep(tiny, *streamer, sweeper, random, 100);
  }
}

TEST_F(ChangingUnits, LendTheSameBytesWhileReadsAreLateShortAndRefused) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 3, .seed = seed});
    StreamerOptions options;
    options.read_bytes = 4096;
    options.wrap_engine = with({.shorten = 0.2, .refuse = 0.2, .delay_us = 200}, seed);
    const auto streamer = make_changing(tiny, options, seed, 2 + seed % 3);
    Sweeper sweeper(*device_, tiny, *streamer, seed);
    std::mt19937_64 random(seed);
    change_and_sweep(tiny, *streamer, sweeper, random, 60);
  }
}

TEST_F(ChangingUnits, AFailedReadOfAUnitThatIsToStayEndsTheRunByName) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 2});
  StreamerOptions options;
  const auto count = std::make_shared<ReadCount>();
  options.wrap_engine = with({.fail_from = 40, .count = count}, 1);
  const auto streamer = make_changing(tiny, options, 0, 2);
  Sweeper sweeper(*device_, tiny, *streamer);
  sweeper.sweep();
  const std::string error = error_of([&] {
    for (int sweep = 0; sweep < 40; ++sweep) {
      for (const std::size_t unit : of_tier(tiny, *streamer, Tier::kDisk)) {
        if (of_tier(tiny, *streamer, Tier::kDisk).size() > 1) streamer->keep(unit);
      }
      sweeper.sweep();
      for (const std::size_t unit : of_tier(tiny, *streamer, Tier::kHost)) streamer->evict(unit);
    }
  });
  EXPECT_TRUE(std::ranges::any_of(tiny.sweep.units, [&](const UnitLayout& layout) {
    return error.find("while reading " + describe(layout.unit)) != std::string::npos;
  })) << error;
  EXPECT_NE(error.find("Input/output error"), std::string::npos) << error;
}

TEST_F(ChangingUnits, AreReadOnceWhenTheyComeAndTakeMemoryOnlyWhileTheyStay) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 6});
  const auto count = std::make_shared<ReadCount>();
  StreamerOptions options;
  options.wrap_engine = with({.count = count}, 1);
  const auto streamer = make_changing(tiny, options, 0, 2);
  Sweeper sweeper(*device_, tiny, *streamer);
  const std::size_t bare = streamer->held_bytes();
  std::uint64_t bytes = 0;
  for (const std::size_t unit : of_tier(tiny, *streamer, Tier::kDisk)) {
    if (of_tier(tiny, *streamer, Tier::kDisk).size() == 1) break;
    streamer->keep(unit);
    bytes += tiny.sweep.units[unit].read.slab_bytes;
  }
  sweeper.sweep();
  sweeper.sweep();  // by now no unit that stays is on its way any more
  EXPECT_EQ(streamer->held_bytes(), bare + bytes);
  EXPECT_EQ(bare + bytes, streamer->held_bytes());
  const Residency stays = streamer->residency();
  EXPECT_EQ(streamer->held_bytes() - least_ring(tiny.sweep, none_resident(tiny.sweep)),
            Streamer::resting_bytes(tiny.sweep, stays, true));
  // One unit travels. A full ring reads no more than sweeps take from it.
  wait_until_full(*count);
  const std::uint64_t before = streamer->totals().disk_bytes;
  for (int sweep = 0; sweep < 10; ++sweep) sweeper.sweep();
  const std::uint64_t one = travelling_bytes(tiny.sweep, stays);
  EXPECT_LE(streamer->totals().disk_bytes - before, 10 * one);
  for (const std::size_t unit : of_tier(tiny, *streamer, Tier::kHost)) streamer->evict(unit);
  EXPECT_EQ(streamer->held_bytes(), bare);
  sweeper.sweep();
}

TEST_F(ChangingUnits, WhatIsInTheRingIsDroppedOnlyWhereTheReaderHasPassed) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 6});
  Residency residency = none_resident(tiny.sweep);
  residency.unit[0] = residency.unit[10] = Tier::kHost;
  const auto count = std::make_shared<ReadCount>();
  StreamerOptions options;
  options.units_change = true;
  options.ring_bytes = least_ring(tiny.sweep, none_resident(tiny.sweep));
  options.wrap_engine = with({.count = count}, 1);
  Streamer streamer(*device_, tiny.sweep, residency, options);
  Sweeper sweeper(*device_, tiny, streamer);
  sweeper.sweep();
  wait_until_full(*count);
  EXPECT_TRUE(streamer.is_passed(0));
  EXPECT_FALSE(streamer.is_passed(10));
  const std::uint64_t before = streamer.totals().disk_bytes;
  streamer.evict(10);
  wait_until_full(*count);
  EXPECT_EQ(streamer.totals().disk_bytes, before);
  streamer.evict(0);
  wait_until_full(*count);
  EXPECT_GT(streamer.totals().disk_bytes, before) << "the first unit has to come first";
  sweeper.sweep();
  EXPECT_THROW(
      [&] {
        const UnitLease lease = streamer.acquire(0, sweeper.compute());
        streamer.keep(3);
      }(),
      Error);
}

TEST(NextChange, LeavesTheUnitsSpread) {
  const TempDir dir;
  const TinyCheckpoint tiny = make_tiny(dir.path(), {.layers = 8, .tied = false});
  const std::size_t count = tiny.sweep.units.size();
  Residency residency = all_resident(tiny.sweep);
  residency.table = Tier::kDisk;
  const std::vector<bool> any(count, true);
  std::vector<std::size_t> order;
  while (const auto unit = next_change(tiny.sweep, residency, Tier::kHost, any)) {
    residency.unit[*unit] = Tier::kDisk;
    order.push_back(*unit);
    if (order.size() == 4) {  // of 17 or more: no two are neighbours, and all quarters have one
      std::vector<std::size_t> first(order);
      std::ranges::sort(first);
      for (std::size_t i = 1; i < 4; ++i) EXPECT_GE(first[i] - first[i - 1], 2u) << i;
      EXPECT_GE(first[3] - first[0], count / 2);
    }
  }
  EXPECT_EQ(order.size(), count);
  std::vector<bool> none(count);
  EXPECT_FALSE(next_change(tiny.sweep, none_resident(tiny.sweep), Tier::kDisk, none));
  none[3] = true;
  EXPECT_EQ(next_change(tiny.sweep, none_resident(tiny.sweep), Tier::kDisk, none), 3u);
}

}  // namespace
}  // namespace canopy
