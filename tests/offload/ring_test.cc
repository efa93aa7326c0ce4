#include "offload/ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace canopy {
namespace {

/// Plays a ring byte by byte: who owns each, and who may be written to.
TEST(Ring, GivesNoByteToTwoStretchesAndComesToEachInTheEnd) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::size_t ring = 20 + random() % 60;
    struct Live {
      Range at;
      std::size_t ready = 0;
    };
    std::deque<Live> live;
    std::vector<int> owners(ring, 0);  // the number of ranges that have the byte
    int made = 0;
    const auto claim = [&](Live& newest) {
      const std::size_t free = free_of(newest.at, live.size() == 1 ? nullptr : &live.front().at);
      EXPECT_GE(free, newest.ready);
      for (; newest.ready < free; ++newest.ready)
        ASSERT_EQ(owners[newest.at.begin + newest.ready]++, 0);
    };
    for (int move = 0; move < 400; ++move) {
      if (!live.empty() && live.back().ready < live.back().at.bytes) {
        claim(live.back());
      } else if (random() % 2 == 0) {
        const std::size_t bytes = 1 + random() % ring;
        const auto begin = place_in_ring(ring, live.empty() ? nullptr : &live.front().at,
                                         live.empty() ? nullptr : &live.back().at, bytes);
        if (begin) {
          ASSERT_LE(*begin + bytes, ring);
          live.push_back({{*begin, bytes}, 0});
          ++made;
          claim(live.back());
        }
      }
      // The oldest goes when it is complete; an incomplete one is the only one by then.
      if (!live.empty() && live.front().ready == live.front().at.bytes && random() % 2 == 0) {
        for (std::size_t i = 0; i < live.front().at.bytes; ++i) --owners[live.front().at.begin + i];
        live.pop_front();
      }
    }
    EXPECT_GT(made, 40);
  }
}

TEST(Ring, ReadsIntoWhatIsFreeOfAPlaceWhileTheOldestStillHasTheRest) {
  const Range oldest{30, 40}, newest{70, 30};  // a ring of 100
  ASSERT_EQ(place_in_ring(100, &oldest, &newest, 50), 0u);
  EXPECT_EQ(free_of({0, 50}, &oldest), 30u);
  EXPECT_EQ(free_of({0, 50}, &newest), 50u);  // the oldest has gone
  EXPECT_FALSE(place_in_ring(100, &newest, &oldest, 50)) << "they run around the end already";
}

}  // namespace
}  // namespace canopy
