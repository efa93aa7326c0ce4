#pragma once
// Weights packed in levels (src/base/formats/levels_format.h). Thirty-two threads take a block:
// each has sixteen places of a group, and between two levels they see which weights of the others
// are open, as these have the bits before theirs.
#include "kernels/cuda/unpack.h"

namespace canopy::cuda {

class LevelRow {
 public:
  using Format = format::LevelsBF16;
  static constexpr int kThreads = 256;

  /// Gives each of `rows` rows a block.
  static Grid grid(std::int64_t rows, std::int64_t columns) {
    const int threads = threads_for(kLanes * Format::blocks(columns), kThreads);
    return {rows, threads, kBuffers * sizeof(std::uint16_t) * static_cast<std::size_t>(threads)};
  }

  /// Calls take(pairs, group, s) for each sixteen of the row, as store_sixteen() has them.
  template <class Block, class Take>
  CANOPY_KERNEL static void unpack(Block& block, const StoredRow& row, const Take& take) {
    auto* const open = block.template shared<std::uint16_t>(kBuffers * block.threads());
    auto mine = block.template each<Sixteen>();
    for (std::int64_t first = 0; first < Format::blocks(row.columns);
         first += block.threads() / kLanes) {
      block.step([&](int t) {
        mine[t] = begin(row, first + t / kLanes, t % kLanes);
        open[t] = static_cast<std::uint16_t>(mine[t].low & mine[t].high);
      });
      CANOPY_UNROLL
      for (int level = 0; level < Format::kLevels; ++level)
        block.step([&](int t) {
          const std::uint16_t* const before = open + level % kBuffers * block.threads();
          const std::uint32_t still = read_level(row, mine[t], before, t);
          mine[t].open[level] = still;
          open[(level + 1) % kBuffers * block.threads() + t] = static_cast<std::uint16_t>(still);
        });
      block.step([&](int t) {
        const std::int64_t group = first * Format::kBlockGroups + t / Format::kSixteens;
        if (group >= Format::groups(row.columns)) return;
        std::uint32_t pairs[Format::kPlaces / 2];
        decode(row, group, mine[t], open + Format::kLevels % kBuffers * block.threads(), t, pairs);
        take(pairs, group, t % Format::kSixteens);
      });
    }
  }

 private:
  static constexpr int kLanes = Format::kBlockGroups * Format::kSixteens;
  static constexpr int kBuffers = 2;  // one is read while the other is written

  /// Sixteen places of a group. No pointers: nvcc does not know what memory one is of that was kept
  /// between steps, and the machine of tests/ptx refuses such loads.
  struct Sixteen {
    std::uint32_t low, high, open[Format::kLevels];
    std::uint32_t tail, tail_bytes;  // of the block, from the row's first byte on
    std::uint32_t bits;              // of the tail that were read
    bool sound;
  };
  CANOPY_KERNEL static Sixteen begin(const StoredRow& row, std::int64_t index, int lane) {
    Sixteen mine{};
    if (index >= Format::blocks(row.columns)) return mine;
    const auto block = Format::block(row, index);
    mine.tail = static_cast<std::uint32_t>(block.tail - row.data);
    mine.tail_bytes = static_cast<std::uint32_t>(block.tail_bytes);
    mine.sound = block.sound;
    const int g = lane / Format::kSixteens, s = lane % Format::kSixteens;
    if (g >= block.groups) return mine;
    const std::byte* const group = block.group + g * Format::kGroupBytes;
    mine.low = format::load<std::uint16_t>(group + 2 * s);
    mine.high = format::load<std::uint16_t>(group + 8 + 2 * s);
    return mine;
  }

  /// Open weights of the block, and of those before thread t's.
  struct Counts {
    std::uint32_t before, all;
  };
  CANOPY_KERNEL static Counts count(const std::uint16_t* open, int t) {
    const auto* const words = reinterpret_cast<const std::byte*>(open + t / kLanes * kLanes);
    const int own = t % kLanes / Format::kSixteens;
    const std::uint64_t earlier = (std::uint64_t{1} << t % Format::kSixteens * Format::kPlaces) - 1;
    Counts counts{};
    CANOPY_UNROLL
    for (int g = 0; g < Format::kBlockGroups; ++g) {
      const auto word = format::load<std::uint64_t>(words + 8 * g);
      const auto ones = static_cast<std::uint32_t>(format::count_ones(word));
      counts.all += ones;
      if (g < own) counts.before += ones;
      if (g == own) counts.before += static_cast<std::uint32_t>(format::count_ones(word & earlier));
    }
    return counts;
  }

  /// Thirty-two bits of a row from `bit` on; those past its end are zeros.
  CANOPY_KERNEL static std::uint32_t bits_at(const StoredRow& row, std::size_t bit) {
    const std::size_t at = bit / 32 * 4;
    const std::uint64_t low = format::load<std::uint32_t>(row.data + at);
    const std::uint64_t high =
        at + 8 <= row.bytes ? format::load<std::uint32_t>(row.data + at + 4) : 0;
    return static_cast<std::uint32_t>((high << 32 | low) >> bit % 32);
  }
  /// Returns those of thread t's weights that the level leaves open. None where the tail has not
  /// its bits: the block is not sound then.
  CANOPY_KERNEL static std::uint32_t read_level(const StoredRow& row, Sixteen& mine,
                                                const std::uint16_t* open, int t) {
    const Counts counts = count(open, t);
    if (mine.bits + counts.all > 8 * mine.tail_bytes) mine.sound = false;
    if (!mine.sound || open[t] == 0) {
      mine.bits += counts.all;
      return 0;
    }
    std::uint32_t bits = bits_at(row, 8 * std::size_t{mine.tail} + mine.bits + counts.before);
    mine.bits += counts.all;
    std::uint32_t still = 0;
    for (std::uint32_t left = open[t]; left != 0; left &= left - 1, bits >>= 1)
      if ((bits & 1) != 0) still |= left & (~left + 1);
    return still;
  }

  CANOPY_KERNEL static void decode(const StoredRow& row, std::int64_t group, const Sixteen& mine,
                                   const std::uint16_t* open, int t, std::uint32_t* pairs) {
    const Counts exceptions = count(open, t);
    const std::uint32_t levels = (mine.bits + 7) / 8;
    const auto block = Format::block(row, group / Format::kBlockGroups);
    if (mine.sound && Format::fills_tail(block, levels + exceptions.all)) {
      Format::decode_sixteen(Format::group(row, group), t % Format::kSixteens,
                             Format::codes_of(mine.low, mine.high, mine.open), block.base,
                             block.tail + levels + exceptions.before, pairs);
    } else {
      for (int i = 0; i < Format::kPlaces / 2; ++i) pairs[i] = Format::kNotANumber * 0x10001u;
    }
  }
};

template <>
struct UnpackRows<format::LevelsBF16> {
  static constexpr int kThreads = LevelRow::kThreads;
  MatrixRows<format::LevelsBF16> rows;
  std::int64_t first;
  std::uint16_t* out;

  Grid grid(std::int64_t count) const { return LevelRow::grid(count, rows.columns); }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t columns = rows.columns;
    std::uint16_t* const to = out + block.index() * columns;
    LevelRow::unpack(block, rows[first + block.index()],
                     [&](const std::uint32_t* pairs, std::int64_t group, int s) {
                       store_sixteen<format::LevelsBF16>(pairs, group, s, columns, to);
                     });
  }
};

template <>
struct EmbedPacked<format::LevelsBF16> {
  using Format = format::LevelsBF16;
  static constexpr int kThreads = LevelRow::kThreads;
  MatrixRows<Format> table;
  std::int64_t vocab;
  const std::int32_t* id;
  float* y;
  bool accumulate;
  Fault* fault;

  Grid grid(std::int64_t count) const { return LevelRow::grid(count, table.columns); }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int32_t row = id[block.index()];
    float* const to = y + block.index() * table.columns;
    if (row < 0 || row >= vocab) {
      block.step([&](int t) {
        if (t == 0) report(fault, Fault::kTokenId, row, vocab);
      });
      return;
    }
    LevelRow::unpack(block, table[row], [&](const std::uint32_t* pairs, std::int64_t group, int s) {
      CANOPY_UNROLL
      for (int p = 0; p < Format::kPlaces; ++p) {
        const std::int64_t k =
            group * Format::kGroupColumns + Format::weight_at(Format::kPlaces * s + p);
        if (k >= table.columns) continue;
        const float value = f32_from_bf16(static_cast<std::uint16_t>(pairs[p / 2] >> p % 2 * 16));
        to[k] = accumulate ? to[k] + value : value;
      }
    });
  }
};

}  // namespace canopy::cuda
