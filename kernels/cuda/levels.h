#pragma once
// Weights packed in levels (src/base/formats/levels_format.h), of BF16 or FP8. Thirty-two threads
// take a block: each has sixteen places of a group, and between two levels they see which weights
// of the others are open, as these have the bits before theirs.
#include "kernels/cuda/unpack.h"

namespace canopy::cuda {

template <class Format>
class LevelRow {
 public:
  static constexpr int kThreads = 256;
  /// Words of sixteen weights, each with as many as it holds.
  static constexpr int kWords =
      Format::kPlaces * static_cast<int>(sizeof(typename Format::Plain::Element)) / 4;

  /// Gives each of `rows` rows a block.
  static Grid grid(std::int64_t rows, std::int64_t columns) {
    const int threads = threads_for(kLanes * Format::blocks(columns), kThreads);
    return {rows, threads, kBuffers * sizeof(std::uint16_t) * static_cast<std::size_t>(threads)};
  }

  /// Calls take(words, group, s) for each sixteen of the row, as decode_sixteen() gives them.
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
        std::uint32_t words[kWords];
        decode(row, group, mine[t], open + Format::kLevels % kBuffers * block.threads(), t, words);
        take(words, group, t % Format::kSixteens);
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

  /// Open weights of the block of thread t: a word for each group, the number of its own, and the
  /// bits of that before its weights.
  struct OpenWeights {
    const std::byte* words;
    int own;
    std::uint64_t earlier;
    CANOPY_KERNEL OpenWeights(const std::uint16_t* open, int t)
        : words(reinterpret_cast<const std::byte*>(open + t / kLanes * kLanes)),
          own(t % kLanes / Format::kSixteens),
          earlier((std::uint64_t{1} << t % Format::kSixteens * Format::kPlaces) - 1) {}
    CANOPY_KERNEL std::uint64_t group(int g) const {
      return format::load<std::uint64_t>(words + 8 * g);
    }
  };

  /// Open weights of the block, and of those before thread t's.
  struct Counts {
    std::uint32_t before, all;
  };
  CANOPY_KERNEL static Counts count(const std::uint16_t* open, int t) {
    const OpenWeights of(open, t);
    Counts counts{};
    CANOPY_UNROLL
    for (int g = 0; g < Format::kBlockGroups; ++g) {
      const std::uint64_t word = of.group(g);
      const auto ones = static_cast<std::uint32_t>(format::count_ones(word));
      counts.all += ones;
      if (g < of.own) counts.before += ones;
      if (g == of.own)
        counts.before += static_cast<std::uint32_t>(format::count_ones(word & of.earlier));
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

  /// Exceptions of the block, when open weights are those: bytes of all and of the groups before
  /// thread t's, and how many its group has before its own.
  struct Exceptions {
    std::uint32_t all, before, within;
  };
  CANOPY_KERNEL static Exceptions exceptions_at(const std::uint16_t* open, int t) {
    const OpenWeights of(open, t);
    Exceptions found{};
    CANOPY_UNROLL
    for (int g = 0; g < Format::kBlockGroups; ++g) {
      const std::uint64_t word = of.group(g);
      const auto bytes =
          static_cast<std::uint32_t>(Format::exception_bytes(format::count_ones(word)));
      found.all += bytes;
      if (g < of.own) found.before += bytes;
      if (g == of.own)
        found.within = static_cast<std::uint32_t>(format::count_ones(word & of.earlier));
    }
    return found;
  }

  CANOPY_KERNEL static void decode(const StoredRow& row, std::int64_t group, const Sixteen& mine,
                                   const std::uint16_t* open, int t,
                                   std::uint32_t (&words)[kWords]) {
    const Exceptions exceptions = exceptions_at(open, t);
    const std::uint32_t levels = (mine.bits + 7) / 8;
    const auto block = Format::block(row, group / Format::kBlockGroups);
    if (!mine.sound || !Format::fills_tail(block, levels + exceptions.all)) {
      constexpr std::uint32_t kEach = kPacksFp8<Format> ? 0x01010101u : 0x10001u;
      for (std::uint32_t& word : words) word = Format::kNotANumber * kEach;
      return;
    }
    const std::byte* const from = Format::group(row, group);
    const std::byte* const first = block.tail + levels + exceptions.before;
    const auto codes = Format::codes_of(mine.low, mine.high, mine.open);
    const int s = t % Format::kSixteens;
    if constexpr (kPacksFp8<Format>)
      Format::decode_sixteen(from, s, codes, block.base, first, static_cast<int>(exceptions.within),
                             words);
    else
      Format::decode_sixteen(from, s, codes, block.base, first + exceptions.within, words);
  }
};

template <>
struct UnpackRows<format::LevelsBF16> {
  using Row = LevelRow<format::LevelsBF16>;
  static constexpr int kThreads = Row::kThreads;
  MatrixRows<format::LevelsBF16> rows;
  std::int64_t first;
  std::uint16_t* out;

  Grid grid(std::int64_t count) const { return Row::grid(count, rows.columns); }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t columns = rows.columns;
    std::uint16_t* const to = out + block.index() * columns;
    Row::unpack(block, rows[first + block.index()],
                [&](const std::uint32_t* pairs, std::int64_t group, int s) {
                  store_sixteen<format::LevelsBF16>(pairs, group, s, columns, to);
                });
  }
};

/// The same of FP8, in F16.
template <class Format>
requires(kPacksFp8<Format>) struct UnpackRows<Format> {
  using Row = LevelRow<Format>;
  static constexpr int kThreads = Row::kThreads;
  MatrixRows<Format> rows;
  std::int64_t first;
  std::uint16_t* out;

  Grid grid(std::int64_t count) const { return Row::grid(count, rows.columns); }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int64_t columns = rows.columns;
    std::uint16_t* const to = out + block.index() * columns;
    const StoredRow row = rows[first + block.index()];
    Row::unpack(block, row, [&](const std::uint32_t* fours, std::int64_t group, int s) {
      const std::int64_t k = group * Format::kGroupColumns + Format::kPlaces * s;
      if (k < columns)
        store(fours, Format::scale(row, k), columns - k, columns % kRun == 0, to + k);
    });
  }

 private:
  static constexpr int kRun = 8;  // weights of a vector
  CANOPY_KERNEL static void store(const std::uint32_t* fours, float scale, std::int64_t left,
                                  bool whole, std::uint16_t* to) {
    CANOPY_UNROLL
    for (int r = 0; r < Format::kPlaces && r < left; r += kRun) {
      std::uint16_t weights[kRun];
      CANOPY_UNROLL
      for (int i = 0; i < kRun; ++i) {
        const auto code = static_cast<std::uint8_t>(fours[(r + i) / 4] >> 8 * (i % 4));
        weights[i] = format::F16::encode(format::f32_from_e4m3(code) * scale);
      }
      const auto pair = [&](int i) { return weights[i] | std::uint32_t{weights[i + 1]} << 16; };
      if (whole) {
        store_words(reinterpret_cast<std::byte*>(to + r), pair(0), pair(2), pair(4), pair(6));
      } else {
        CANOPY_UNROLL
        for (int i = 0; i < kRun; ++i)
          if (r + i < left) to[r + i] = weights[i];
      }
    }
  }
};

/// Ops::embed from a table in levels. One block per id.
template <class Format>
requires(requires { Format::kLevels; }) struct EmbedPacked<Format> {
  using Row = LevelRow<Format>;
  static constexpr int kThreads = Row::kThreads;
  MatrixRows<Format> table;
  std::int64_t vocab;
  const std::int32_t* id;
  float* y;
  bool accumulate;
  Fault* fault;

  Grid grid(std::int64_t count) const { return Row::grid(count, table.columns); }
  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const std::int32_t index = id[block.index()];
    float* const to = y + block.index() * table.columns;
    if (index < 0 || index >= vocab) {
      block.step([&](int t) {
        if (t == 0) report(fault, Fault::kTokenId, index, vocab);
      });
      return;
    }
    const StoredRow row = table[index];
    Row::unpack(block, row, [&](const std::uint32_t* words, std::int64_t group, int s) {
      CANOPY_UNROLL
      for (int p = 0; p < Format::kPlaces; ++p) {
        const std::int64_t k =
            group * Format::kGroupColumns + Format::weight_at(Format::kPlaces * s + p);
        if (k >= table.columns) continue;
        const float value = weight(row, words, p, k);
        to[k] = accumulate ? to[k] + value : value;
      }
    });
  }

 private:
  CANOPY_KERNEL static float weight(const StoredRow& row, const std::uint32_t* words, int p,
                                    std::int64_t k) {
    if constexpr (kPacksFp8<Format>)
      return format::f32_from_e4m3(static_cast<std::uint8_t>(words[p / 4] >> 8 * (p % 4))) *
             Format::scale(row, k);
    else
      return f32_from_bf16(static_cast<std::uint16_t>(words[p / 2] >> p % 2 * 16));
  }
};

}  // namespace canopy::cuda
