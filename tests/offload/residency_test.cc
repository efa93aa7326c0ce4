#include "offload/residency.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/tiny_checkpoint.h"

namespace canopy {
namespace {

using test::make_tiny;
using test::TinyCheckpoint;

class ResidencyTest : public testing::TestWithParam<bool> {
 protected:
  TempDir dir_;
  const TinyCheckpoint tiny_ = make_tiny(dir_.path(), {.layers = 12, .tied = GetParam()});
  const SweepLayout& sweep_ = tiny_.sweep;
  const std::vector<UnitLayout>& units_ = sweep_.units;
  const std::size_t model_ = travelling_bytes(sweep_, none_resident(sweep_));

  std::size_t largest() const { return least_ring(sweep_, none_resident(sweep_)) / 2; }
};

TEST_P(ResidencyTest, UsesWhatItIsGivenToWithinAUnitAndNeverMore) {
  for (std::size_t bytes = 0; bytes <= model_; bytes += 4096) {
    const Residency residency = spread_resident(sweep_, bytes);
    const std::size_t used = model_ - travelling_bytes(sweep_, residency);
    EXPECT_LE(used, bytes);
    EXPECT_GT(used + largest() + 1, bytes);
  }
}

TEST_P(ResidencyTest, SpreadsEvenlyOverTheLayers) {
  for (const double share : {0.2, 0.5, 0.8}) {
    const auto bytes = static_cast<std::size_t>(share * static_cast<double>(model_));
    const Residency residency = spread_resident(sweep_, bytes);
    std::size_t run = 0, longest = 0, layers = 0, at_rest = 0, before = 0;
    for (std::size_t i = 0; i < units_.size() && units_[i].unit.kind != UnitKind::kHead; ++i) {
      layers += units_[i].read.slab_bytes;
      if (residency.unit[i] == Tier::kHost) at_rest += units_[i].read.slab_bytes;
    }
    const double of_layers = static_cast<double>(at_rest) / static_cast<double>(layers);
    std::size_t seen = 0;
    for (std::size_t i = 0; i < units_.size() && units_[i].unit.kind != UnitKind::kHead; ++i) {
      seen += units_[i].read.slab_bytes;
      if (residency.unit[i] == Tier::kHost) before += units_[i].read.slab_bytes;
      run = residency.unit[i] == Tier::kHost ? run + 1 : 0;
      longest = std::max(longest, run);
      EXPECT_NEAR(static_cast<double>(before), of_layers * static_cast<double>(seen),
                  2.0 * static_cast<double>(largest()))
          << "after unit " << i;
    }
    EXPECT_LE(static_cast<double>(longest), 2 / (1 - share) + 2);
  }
}

TEST_P(ResidencyTest, TheSmallestUnitThatMakesRoomTravels) {
  Residency residency = none_resident(sweep_);
  std::vector<bool> may_change(units_.size(), true);
  std::vector<std::size_t> sizes;
  for (std::size_t i = 1; i < units_.size(); ++i) {
    residency.unit[i] = Tier::kHost;
    if (units_[i].read.slab_bytes > 0) sizes.push_back(units_[i].read.slab_bytes);
  }
  std::ranges::sort(sizes);
  ASSERT_GT(sizes.back(), 2 * sizes.front());
  for (const std::size_t wanted : sizes) {
    const auto unit = next_to_travel(sweep_, residency, wanted, may_change);
    ASSERT_TRUE(unit.has_value());
    EXPECT_GE(units_[*unit].read.slab_bytes, wanted);
    EXPECT_LE(units_[*unit].read.slab_bytes, wanted + wanted / 4);
    EXPECT_NE(*unit, 0u) << "it travels";
  }
  EXPECT_TRUE(next_to_travel(sweep_, residency, sizes.back() + 1, may_change).has_value());
  const auto first = next_to_travel(sweep_, residency, 1, may_change);
  may_change[*first] = false;
  EXPECT_NE(next_to_travel(sweep_, residency, 1, may_change), first);
  EXPECT_FALSE(next_to_travel(sweep_, none_resident(sweep_), 1, may_change).has_value());
}

TEST_P(ResidencyTest, ADraftOfTheSameModelHasItsHeadAndWholeLayersFromBothEnds) {
  const int layers = sweep_.config.layers;
  int fewest = layers, most = 0;
  for (std::size_t bytes = 0; bytes <= 2 * model_; bytes += 4096) {
    const Residency residency = ends_resident(sweep_, bytes);
    EXPECT_EQ(residency.table, Tier::kHost);
    std::vector<bool> rests(static_cast<std::size_t>(layers), true);
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const bool at_rest = residency.unit[i] == Tier::kHost;
      if (units_[i].unit.kind == UnitKind::kHead) {
        EXPECT_TRUE(at_rest);
      } else if (!at_rest) {
        rests[static_cast<std::size_t>(units_[i].unit.layer)] = false;
      }
    }
    const auto first = std::find(rests.begin(), rests.end(), false);
    const auto last = std::find(rests.rbegin(), rests.rend(), false).base();
    EXPECT_NE(first, rests.end());
    EXPECT_EQ(std::count(first, last, true), 0);  // what travels is one stretch, in the middle
    const auto before = first - rests.begin(), behind = rests.end() - last;
    EXPECT_TRUE(before == behind || before == behind + 1) << before << " " << behind;
    const int kept = static_cast<int>(before + behind);
    fewest = std::min(fewest, kept);
    most = std::max(most, kept);
    const std::size_t table = GetParam() ? 0 : sweep_.embedding.bytes;
    const std::size_t used = model_ - travelling_bytes(sweep_, residency) + table;
    EXPECT_EQ(used, ends_bytes(sweep_, kept));
    EXPECT_LE(used, std::max(bytes, ends_bytes(sweep_, 0)));
  }
  EXPECT_EQ(fewest, 2);
  EXPECT_EQ(most, layers - 1);
}

TEST_P(ResidencyTest, KeepsATiedHeadWithItsTableAndAlwaysLetsAUnitTravel) {
  const Residency half = spread_resident(sweep_, model_ / 2);
  EXPECT_EQ(half.table, GetParam() ? Tier::kHost : Tier::kDisk);
  const Residency all = spread_resident(sweep_, 2 * model_);
  EXPECT_GT(travelling_bytes(sweep_, all), 0u);
  EXPECT_EQ(travelling_bytes(sweep_, all_resident(sweep_)), 0u);
}

INSTANTIATE_TEST_SUITE_P(Heads, ResidencyTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "tied" : "apart"; });

}  // namespace
}  // namespace canopy
