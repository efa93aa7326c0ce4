#pragma once
// GGUF's formats of 256 weights whose codes come from a grid: a code word is the number of an
// entry, which gives four or eight weights at once. Their list stands in weight_format.h.
#include <cstddef>
#include <cstdint>

#include "src/base/formats/block_formats.h"
#include "src/base/formats/grid_tables.h"

namespace canopy::format {

// A GPU has a copy of each table in its own memory; what runs there reads that.
#if defined(__CUDACC__)
#define CANOPY_GRID_ON_DEVICE(name) \
  static __device__ const decltype(k##name##Grid) kDevice##name##Grid = k##name##Grid;
CANOPY_GRID_ON_DEVICE(IQ2XXS)
CANOPY_GRID_ON_DEVICE(IQ2XS)
CANOPY_GRID_ON_DEVICE(IQ2S)
CANOPY_GRID_ON_DEVICE(IQ3XXS)
CANOPY_GRID_ON_DEVICE(IQ3S)
CANOPY_GRID_ON_DEVICE(IQ1S)
#undef CANOPY_GRID_ON_DEVICE
#endif
#if defined(__CUDA_ARCH__)
#define CANOPY_GRID_HERE(name) kDevice##name##Grid
#else
#define CANOPY_GRID_HERE(name) k##name##Grid
#endif
// Members of a format by that grid.
#define CANOPY_HAS_GRID(name)                         \
  static constexpr const auto& kGrid = k##name##Grid; \
  CANOPY_HOST_DEVICE static int entry(int index) { return CANOPY_GRID_HERE(name).entries[index]; }

/// Four bytes at an even address.
CANOPY_HOST_DEVICE inline std::uint32_t load_even_u32(const std::byte* from) {
  return load<std::uint16_t>(from) | std::uint32_t{load<std::uint16_t>(from + 2)} << 16;
}
/// Eight signs from seven: of eight, an even number is set.
CANOPY_HOST_DEVICE inline int even_signs(int seven) {
  constexpr int kOddNibbles = 0x6996;
  return seven | (kOddNibbles >> ((seven ^ seven >> 4) & 15) & 1) << 7;
}
/// Half `group` of bytes of two numbers each, the even one low; as an odd number.
CANOPY_HOST_DEVICE inline int odd_nibble(const std::byte* from, int group) {
  return 2 * bits(from[group / 2], group % 2 * 4, 4) + 1;
}

/// Code i of a block: a value of an entry, negated, or moved by one, as its sign bit says. A format
/// has, besides what all in groups have: kRun weights of an entry, kBits of each in its table; the
/// kGrid, whose entry(index) is read where it runs; index(block, run), of weights [kRun run, kRun
/// (run + 1)); value(number); signs(block, eight), bits of weights [8 eight, 8 (eight + 1)); and
/// kMoves: a sign adds -1 in place of 1.
template <class Format>
CANOPY_HOST_DEVICE inline int grid_code(const std::byte* block, int i) {
  const int numbers = Format::entry(Format::index(block, i / Format::kRun));
  const int value =
      Format::value(numbers >> (i % Format::kRun * Format::kBits) & ((1 << Format::kBits) - 1));
  const bool negative = (Format::signs(block, i / 8) >> (i % 8) & 1) != 0;
  if constexpr (Format::kMoves) return negative ? value - 1 : value + 1;
  return negative ? -value : value;
}

/// Members that these formats share. The scale is the f16 at kScaleAt over kParts.
template <int kElements, int kDivisor>
struct OfGrid : Groups<kElements> {
  static constexpr int kMinimumAt = -1, kScaleAt = 0, kParts = kDivisor;
  static constexpr bool kMoves = false;
  CANOPY_HOST_DEVICE static float scale(const std::byte* block) {
    return load_f16(block) * (1.0f / kParts);
  }
};
/// Members of those whose entries have eight of the values 8, 25 and 43.
struct EightOfThree : OfGrid<16, 8> {
  static constexpr int kRun = 8, kBits = 2;
  CANOPY_HOST_DEVICE static constexpr int value(int number) {
    return 0x2b1908 >> (8 * number) & 255;
  }
};
/// Members of those whose entries have eight of -1, 0 and 1, in eighths: with the move of one, 8 g
/// - 1 or 8 g + 1.
template <int kElements>
struct EightOfSigns : OfGrid<kElements, 8> {
  static constexpr int kRun = 8, kBits = 2;
  static constexpr bool kMoves = true;
  CANOPY_HAS_GRID(IQ1S)
  CANOPY_HOST_DEVICE static constexpr int value(int number) { return 8 * (number - 1); }
};

/// {f16 d; {u8 e[4]; u7 g[4]; u4 s}[8]}: d / 8 (2 s + 1) times the entries e, with the signs g, of
/// groups of 32. The last four bytes of a group are one word, g[0] lowest.
struct IQ2_XXS : EightOfThree {
  static constexpr DType kDType = DType::kIQ2_XXS;
  static constexpr const char* kName = "IQ2_XXS";
  static constexpr std::uint32_t kGgufId = 16, kGgufFileType = 19;
  static constexpr int kBlockBytes = 66, kGroupElements = 32, kCodesAt = 2;
  CANOPY_HOST_DEVICE static std::uint32_t word(const std::byte* block, int group) {
    return load_even_u32(block + kCodesAt + 8 * group + 4);
  }
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return 2 * static_cast<int>(word(block, group) >> 28) + 1;
  }
  CANOPY_HAS_GRID(IQ2XXS)
  CANOPY_HOST_DEVICE static int index(const std::byte* block, int run) {
    return bits(block[kCodesAt + run / 4 * 8 + run % 4], 0, 8);
  }
  CANOPY_HOST_DEVICE static int signs(const std::byte* block, int eight) {
    return even_signs(static_cast<int>(word(block, eight / 4) >> (7 * (eight % 4)) & 127));
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return grid_code<IQ2_XXS>(block, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ2_XXS>(block, i);
  }
};

/// {f16 d; {u9 e; u7 g}[32]; u4 s[16]}: d / 8 (2 s + 1) times the entries e, with the signs g, of
/// groups of 16. s[j] is a half of byte j / 2, the low one for even j.
struct IQ2_XS : EightOfThree {
  static constexpr DType kDType = DType::kIQ2_XS;
  static constexpr const char* kName = "IQ2_XS";
  static constexpr std::uint32_t kGgufId = 17, kGgufFileType = 20;
  static constexpr int kBlockBytes = 74, kCodesAt = 2, kGroupsAt = 66;
  CANOPY_HOST_DEVICE static int word(const std::byte* block, int run) {
    return load<std::uint16_t>(block + kCodesAt + 2 * run);
  }
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return odd_nibble(block + kGroupsAt, group);
  }
  CANOPY_HAS_GRID(IQ2XS)
  CANOPY_HOST_DEVICE static int index(const std::byte* block, int run) {
    return word(block, run) & 511;
  }
  CANOPY_HOST_DEVICE static int signs(const std::byte* block, int eight) {
    return even_signs(word(block, eight) >> 9);
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return grid_code<IQ2_XS>(block, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ2_XS>(block, i);
  }
};

/// {f16 d; u8 e[32]; u8 g[32]; u2 h[32]; u4 s[16]}: d / 8 (2 s + 1) times the entries e + 256 h,
/// with the signs g, of groups of 16. Four h have a byte, the first its lowest bits; s lies as
/// IQ2_XS has it.
struct IQ2_S : EightOfThree {
  static constexpr DType kDType = DType::kIQ2_S;
  static constexpr const char* kName = "IQ2_S";
  static constexpr std::uint32_t kGgufId = 22, kGgufFileType = 28;
  static constexpr int kBlockBytes = 82;
  static constexpr int kCodesAt = 2, kSignsAt = 34, kHighAt = 66, kGroupsAt = 74;
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return odd_nibble(block + kGroupsAt, group);
  }
  CANOPY_HAS_GRID(IQ2S)
  CANOPY_HOST_DEVICE static int index(const std::byte* block, int run) {
    return bits(block[kCodesAt + run], 0, 8) | bits(block[kHighAt + run / 4], run % 4 * 2, 2) << 8;
  }
  CANOPY_HOST_DEVICE static int signs(const std::byte* block, int eight) {
    return bits(block[kSignsAt + eight], 0, 8);
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return grid_code<IQ2_S>(block, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ2_S>(block, i);
  }
};

/// {f16 d; u8 e[64]; {u7 g[4]; u4 s}[8]}: d / 4 (2 s + 1) times the entries e, with the signs g, of
/// groups of 32. An entry has four of the values 4, 12, 20, 28, 36, 44, 52 and 62.
struct IQ3_XXS : OfGrid<32, 4> {
  static constexpr DType kDType = DType::kIQ3_XXS;
  static constexpr const char* kName = "IQ3_XXS";
  static constexpr std::uint32_t kGgufId = 18, kGgufFileType = 23;
  static constexpr int kBlockBytes = 98, kRun = 4, kBits = 3, kCodesAt = 2, kGroupsAt = 66;
  CANOPY_HOST_DEVICE static std::uint32_t word(const std::byte* block, int group) {
    return load_even_u32(block + kGroupsAt + 4 * group);
  }
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return 2 * static_cast<int>(word(block, group) >> 28) + 1;
  }
  CANOPY_HAS_GRID(IQ3XXS)
  CANOPY_HOST_DEVICE static constexpr int value(int number) {
    return 8 * number + (number < 7 ? 4 : 6);
  }
  CANOPY_HOST_DEVICE static int index(const std::byte* block, int run) {
    return bits(block[kCodesAt + run], 0, 8);
  }
  CANOPY_HOST_DEVICE static int signs(const std::byte* block, int eight) {
    return even_signs(static_cast<int>(word(block, eight / 4) >> (7 * (eight % 4)) & 127));
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return grid_code<IQ3_XXS>(block, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ3_XXS>(block, i);
  }
};

/// {f16 d; u8 e[64]; u1 h[64]; u8 g[32]; u4 s[8]}: d (2 s + 1) times the entries e + 256 h, with
/// the signs g, of groups of 32. An entry has four of the odd values up to 15; s lies as IQ2_XS has
/// it.
struct IQ3_S : OfGrid<32, 1> {
  static constexpr DType kDType = DType::kIQ3_S;
  static constexpr const char* kName = "IQ3_S";
  static constexpr std::uint32_t kGgufId = 21, kGgufFileType = 26;
  static constexpr int kBlockBytes = 110, kRun = 4, kBits = 3;
  static constexpr int kCodesAt = 2, kHighAt = 66, kSignsAt = 74, kGroupsAt = 106;
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return odd_nibble(block + kGroupsAt, group);
  }
  CANOPY_HAS_GRID(IQ3S)
  CANOPY_HOST_DEVICE static constexpr int value(int number) { return 2 * number + 1; }
  CANOPY_HOST_DEVICE static int index(const std::byte* block, int run) {
    return bits(block[kCodesAt + run], 0, 8) | bits(block[kHighAt + run / 8], run % 8, 1) << 8;
  }
  CANOPY_HOST_DEVICE static int signs(const std::byte* block, int eight) {
    return bits(block[kSignsAt + eight], 0, 8);
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return grid_code<IQ3_S>(block, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ3_S>(block, i);
  }
};

/// {f16 d; u8 e[32]; {u3 h[4]; u3 s; u1 m}[8]}: d / 8 (2 s + 1) (8 g + 1 - 2 m) for the values g of
/// the entries e + 256 h, groups of 32.
struct IQ1_S : EightOfSigns<32> {
  static constexpr DType kDType = DType::kIQ1_S;
  static constexpr const char* kName = "IQ1_S";
  static constexpr std::uint32_t kGgufId = 19, kGgufFileType = 24;
  static constexpr int kBlockBytes = 50, kCodesAt = 2, kHighAt = 34;
  CANOPY_HOST_DEVICE static int word(const std::byte* block, int group) {
    return load<std::uint16_t>(block + kHighAt + 2 * group);
  }
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return 2 * (word(block, group) >> 12 & 7) + 1;
  }
  CANOPY_HOST_DEVICE static int index(const std::byte* block, int run) {
    return bits(block[kCodesAt + run], 0, 8) | (word(block, run / 4) >> (3 * (run % 4)) & 7) << 8;
  }
  CANOPY_HOST_DEVICE static int signs(const std::byte* block, int eight) {
    return word(block, eight / 4) >= 1 << 15 ? 255 : 0;
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return grid_code<IQ1_S>(block, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ1_S>(block, i);
  }
};

/// {u8 e[32]; {u3 h; u1 m}[32]; {u3 s[4]; u4 d}[4]}: d / 8 (2 s + 1) (8 g + 1 - 2 m) for the values
/// g of the entries e + 256 h, groups of 16. The four d are one f16, the first its lowest bits.
struct IQ1_M : EightOfSigns<16> {
  static constexpr DType kDType = DType::kIQ1_M;
  static constexpr const char* kName = "IQ1_M";
  static constexpr std::uint32_t kGgufId = 29, kGgufFileType = 31;
  static constexpr int kBlockBytes = 56, kCodesAt = 0, kHighAt = 32, kGroupsAt = 48;
  CANOPY_HOST_DEVICE static int word(const std::byte* block, int at) {
    return load<std::uint16_t>(block + kGroupsAt + 2 * at);
  }
  CANOPY_HOST_DEVICE static float scale(const std::byte* block) {
    const int half = word(block, 0) >> 12 | (word(block, 1) >> 12) << 4 |
                     (word(block, 2) >> 12) << 8 | (word(block, 3) >> 12) << 12;
    return f32_from_f16(static_cast<std::uint16_t>(half)) * (1.0f / kParts);
  }
  CANOPY_HOST_DEVICE static int group_scale(const std::byte* block, int group) {
    return 2 * (word(block, group / 4) >> (3 * (group % 4)) & 7) + 1;
  }
  CANOPY_HOST_DEVICE static int high(const std::byte* block, int run) {
    return bits(block[kHighAt + run / 2], run % 2 * 4, 4);
  }
  CANOPY_HOST_DEVICE static int index(const std::byte* block, int run) {
    return bits(block[kCodesAt + run], 0, 8) | (high(block, run) & 7) << 8;
  }
  CANOPY_HOST_DEVICE static int signs(const std::byte* block, int eight) {
    return high(block, eight) >= 8 ? 255 : 0;
  }
  CANOPY_HOST_DEVICE static int code(const std::byte* block, int i) {
    return grid_code<IQ1_M>(block, i);
  }
  CANOPY_HOST_DEVICE static float decode(const std::byte* block, int i) {
    return element_of_group<IQ1_M>(block, i);
  }
};

/// True of the formats of this file.
template <class Format>
inline constexpr bool kIsOfGrid = requires {
  Format::kGrid;
};

#undef CANOPY_HAS_GRID
#undef CANOPY_GRID_HERE

}  // namespace canopy::format
