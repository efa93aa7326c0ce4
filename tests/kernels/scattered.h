#pragma once
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/kernels/on_device.h"

namespace canopy {

/// A cache [heads, slots, row] of bytes, in blocks that lie anywhere in a pool, with room for
/// another layer's between them. What is not of the cache is NaN, as other weights may leave it.
class Scattered {
 public:
  Scattered(const std::vector<std::byte>& cache, std::size_t heads, std::size_t slots,
            std::vector<std::int32_t> blocks)
      : heads_(heads),
        slots_(slots),
        row_(cache.size() / heads / slots),
        block_(std::move(blocks)) {
    pool_.resize((block_.size() + kSpare) * stride(), std::byte{0xff});  // no number
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t slot = 0; slot < slots; ++slot)
        std::memcpy(&pool_[at(head, slot)], &cache[(head * slots + slot) * row_], row_);
  }
  const std::vector<std::byte>& pool() const { return pool_; }
  std::size_t stride() const { return heads_ * kKvBlock * row_ + kApart; }

  /// Returns the bytes of a pool of the same blocks as a cache in one piece.
  std::vector<std::byte> cache_in(const std::vector<std::byte>& pool) const {
    std::vector<std::byte> cache(heads_ * slots_ * row_);
    for (std::size_t head = 0; head < heads_; ++head)
      for (std::size_t slot = 0; slot < slots_; ++slot)
        std::memcpy(&cache[(head * slots_ + slot) * row_], &pool[at(head, slot)], row_);
    return cache;
  }

  /// A table for `slots` slots: random blocks of a pool that has some to spare.
  static std::vector<std::int32_t> table(std::size_t slots, std::mt19937& random) {
    const std::size_t blocks = (slots + kKvBlock - 1) / kKvBlock;
    std::vector<std::int32_t> all(blocks + kSpare);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    all.resize(blocks);
    return all;
  }

 private:
  static constexpr std::size_t kSpare = 2, kApart = 48;
  std::size_t at(std::size_t head, std::size_t slot) const {
    const auto block = static_cast<std::size_t>(block_[slot / kKvBlock]);
    return block * stride() + (head * kKvBlock + slot % kKvBlock) * row_;
  }
  std::size_t heads_, slots_, row_;
  std::vector<std::int32_t> block_;
  std::vector<std::byte> pool_;
};

}  // namespace canopy
