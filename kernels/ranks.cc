#include "kernels/ranks.h"

#include <algorithm>
#include <numeric>

#include "src/base/error.h"

namespace canopy {

RowRange Share::rows_of(int of_rank, std::int64_t total) const {
  const std::int64_t blocks = (total + block - 1) / block,
                     all = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
  const auto begin_of = [&](int r) {
    const std::int64_t before = std::accumulate(parts.begin(), parts.begin() + r, std::int64_t{0});
    return std::min(total, blocks * before / all * block);
  };
  const std::int64_t first = begin_of(of_rank);
  return {first, begin_of(of_rank + 1) - first};
}

void require_valid(const Share& share) {
  require(share.rank >= 0 && share.rank < share.ranks(), "a share is of one of its ranks");
  require(std::ranges::all_of(share.parts, [](std::int64_t part) { return part > 0; }),
          "each rank has a part above 0");
  require(share.block > 0, "a matrix is cut between blocks of rows");
}

}  // namespace canopy
