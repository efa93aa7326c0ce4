#pragma once
#include <cstdint>

#include "offload/streamer.h"

namespace canopy {

/// Bytes that both links have moved, and the time they took: from disk, and to a device with memory
/// of its own.
struct LinkReport : LinkTotals {
  std::uint64_t upload_bytes = 0;
  Seconds upload_busy{};                             // with a copy under way
  std::uint64_t expert_hits = 0, expert_misses = 0;  // as ExpertTotals; 0: no such cache
  std::uint64_t experts_foreseen = 0, experts_wasted = 0;  // likewise

  LinkReport& operator+=(const LinkReport& more) {
    LinkTotals::operator+=(more);
    upload_bytes += more.upload_bytes;
    upload_busy += more.upload_busy;
    expert_hits += more.expert_hits;
    expert_misses += more.expert_misses;
    experts_foreseen += more.experts_foreseen;
    experts_wasted += more.experts_wasted;
    return *this;
  }
  friend LinkReport operator-(const LinkReport& later, const LinkReport& earlier) {
    LinkReport difference;
    static_cast<LinkTotals&>(difference) =
        static_cast<const LinkTotals&>(later) - static_cast<const LinkTotals&>(earlier);
    difference.upload_bytes = later.upload_bytes - earlier.upload_bytes;
    difference.upload_busy = later.upload_busy - earlier.upload_busy;
    difference.expert_hits = later.expert_hits - earlier.expert_hits;
    difference.expert_misses = later.expert_misses - earlier.expert_misses;
    difference.experts_foreseen = later.experts_foreseen - earlier.experts_foreseen;
    difference.experts_wasted = later.experts_wasted - earlier.experts_wasted;
    return difference;
  }
};

}  // namespace canopy
