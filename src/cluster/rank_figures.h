#pragma once
#include <cstdint>

#include "src/base/types.h"

namespace canopy {

/// Counts of a rank since its engine was loaded: take differences. Plain data, as messages have it.
struct RankFigures {
  std::uint64_t disk_bytes = 0;  // read
  Seconds link_busy{};           // with a read in flight
  Seconds stalled{};             // its arithmetic waited for reads
  Seconds waited{};              // for columns of other ranks
  Seconds elapsed{};             // by its own clock

  friend RankFigures operator-(const RankFigures& later, const RankFigures& earlier) {
    return {later.disk_bytes - earlier.disk_bytes, later.link_busy - earlier.link_busy,
            later.stalled - earlier.stalled, later.waited - earlier.waited,
            later.elapsed - earlier.elapsed};
  }
  RankFigures& operator+=(const RankFigures& more) {
    disk_bytes += more.disk_bytes;
    link_busy += more.link_busy;
    stalled += more.stalled;
    waited += more.waited;
    elapsed += more.elapsed;
    return *this;
  }
};

}  // namespace canopy
