#pragma once
// The kernels of attention that a call takes, by the columns of its heads and the format of its
// cache.
#include <cstdint>
#include <string>

#include "kernels/cuda/attention.h"
#include "src/base/error.h"

namespace canopy::cuda {

/// Calls visit<kColumns, kExact>() with those of AttendChunk for such heads, of at most 512
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
      if (head_dim <= 256) return visit.template operator()<256, false>();
      return visit.template operator()<512, false>();
  }
}

/// AttendChunk's rows of a block, where there are many. That number leaves room for two blocks on a
/// multiprocessor of 100 KB; heads of 256 columns in 32 bits have room for one, as those of 512 in
/// 16 bits.
template <class Format, int kColumns>
constexpr int rows_of_block() {
  if (kColumns > 256) return 8;
  constexpr bool kWide = kColumns > 128, kInF32 = Format::kBlockBytes > 2;
  return kWide == kInF32 ? (kWide ? 16 : 32) : kWide ? 8 : 16;
}

/// True of caches of which a block has room for its keys.
template <class Format>
constexpr bool has_room(std::int64_t columns) {
  return columns <= (Format::kBlockBytes > 2 ? 256 : 512);
}
/// Throws Error unless a cache of this type and heads of that many columns is one of them.
inline void require_room(DType dtype, std::int64_t columns) {
  visit_format(PlainFormats(), dtype, [&]<class Format>(Format) {
    if (!has_room<Format>(columns))
      throw Error("attend: heads of " + std::to_string(columns) +
                  " columns; on a GPU at most 256 are supported, or 512 of a cache in 16 bits");
  });
}

}  // namespace canopy::cuda
