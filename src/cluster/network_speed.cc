#include <algorithm>
#include <bit>
#include <vector>

#include "src/cluster/cluster.h"

namespace canopy {

void Cluster::measure() {
  constexpr std::size_t kBytes = 1 << 20;
  constexpr int kTurns = 9;
  const auto median = [&](std::size_t bytes) {
    const std::vector<std::byte> message(bytes);
    std::vector<Seconds> times;
    collect(message);  // buffers are made, connections opened
    for (int turn = 0; turn < kTurns; ++turn) {
      const auto begun = Clock::now();
      collect(message);
      times.push_back(since(begun));
    }
    std::ranges::nth_element(times, times.begin() + kTurns / 2);
    return times[kTurns / 2];
  };
  const Seconds small = median(0), large = median(kBytes);
  const auto others = static_cast<unsigned>(share().ranks() - 1);
  if (others == 0) return;
  speed_.latency = small / std::bit_width(others);
  constexpr Seconds kLeast{1e-6};  // where the difference drowns in noise
  speed_.bytes_per_second = kBytes * others / std::max(kLeast, large - small).count();
}

}  // namespace canopy
