#pragma once
// The kernels of attention that a call takes, by the columns of its heads and the format of its
// cache.
#include <cstdint>

#include "kernels/cuda/attention.h"

namespace canopy::cuda {

/// Calls visit<kColumns, kExact>() with those of AttendChunk for such heads, of at most 256
/// columns.
template <class Visit>
void visit_columns(std::int64_t head_dim, const Visit& visit) {
  switch (head_dim) {
    case 64:
      return visit.template operator()<64, true>();
    case 80:
      return visit.template operator()<80, true>();
    case 96:
      return visit.template operator()<96, true>();
    case 128:
      return visit.template operator()<128, true>();
    default:
      if (head_dim <= 64) return visit.template operator()<64, false>();
      if (head_dim <= 128) return visit.template operator()<128, false>();
      return visit.template operator()<256, false>();
  }
}

/// AttendChunk's rows of a block, where there are many. That number leaves room for two blocks on a
/// multiprocessor of 100 KB; heads of 256 columns in 32 bits have room for one.
template <class Format, int kColumns>
constexpr int rows_of_block() {
  constexpr bool kWide = kColumns > 128, kInF32 = Format::kBlockBytes > 2;
  return kWide == kInF32 ? (kWide ? 16 : 32) : kWide ? 8 : 16;
}

}  // namespace canopy::cuda
