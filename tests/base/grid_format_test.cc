// The formats by a grid, NVFP4 and NF4, with one thing wrong each: the goldens of
// weight_format_test.cc, which all of them pass as they are, must show it.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <set>

#include "src/base/formats/grid_formats.h"
#include "tests/base/block_golden.h"

namespace canopy {
namespace {

/// Elements of NAME.blocks that differ from what Mutant makes of its blocks.
template <class Mutant>
int differing() {
  const BlockGoldenFile golden(*find_format(Mutant::kDType));
  int count = 0;
  for (std::size_t i = 0; i < golden.values.size(); ++i) {
    const auto at = static_cast<int>(i);
    const std::byte* const block =
        golden.blocks() + at / Mutant::kBlockElements * Mutant::kBlockBytes;
    const float value = format::element_of_group<Mutant>(block, at % Mutant::kBlockElements);
    if (value != golden.values[i]) ++count;
  }
  return count;
}

/// A format whose code() reads what it overrides.
template <class Format, class Mutant>
struct Again : Format {
  static int code(const std::byte* block, int i) { return format::grid_code<Mutant>(block, i); }
};
template <class Format>
struct Unchanged : Again<Format, Unchanged<Format>> {};

template <class Format>
struct SignsFromTheHighest : Again<Format, SignsFromTheHighest<Format>> {
  static int signs(const std::byte* block, int eight) {
    int reversed = 0;
    for (int i = 0; i < 8; ++i) reversed |= (Format::signs(block, eight) >> i & 1) << (7 - i);
    return reversed;
  }
};
template <class Format>
struct EighthSignKept : Again<Format, EighthSignKept<Format>> {
  static int signs(const std::byte* block, int eight) { return Format::signs(block, eight) & 127; }
};
template <class Format>
struct OddSigns : Again<Format, OddSigns<Format>> {
  static int signs(const std::byte* block, int eight) { return Format::signs(block, eight) ^ 128; }
};
template <class Format>
struct SignsOfTheNextGroup : Again<Format, SignsOfTheNextGroup<Format>> {
  static int signs(const std::byte* block, int eight) { return Format::signs(block, eight ^ 4); }
};
template <class Format>
struct MovesTheOtherWay : Again<Format, MovesTheOtherWay<Format>> {
  static int signs(const std::byte* block, int eight) { return ~Format::signs(block, eight); }
};
template <class Format>
struct ScaleOfTheNextGroup : Format {
  static int group_scale(const std::byte* block, int group) {
    return Format::group_scale(block, group ^ 1);
  }
};
template <class Format>
struct ScaleWithoutItsHalf : Format {
  static int group_scale(const std::byte* block, int group) {
    return Format::group_scale(block, group) - 1;
  }
};
template <class Format>
struct ScaleNotParted : Format {
  static float scale(const std::byte* block) { return 2 * Format::scale(block); }
};
template <class Format>
struct EntryBackwards : Again<Format, EntryBackwards<Format>> {
  static int entry(int index) {
    int reversed = 0;
    for (int i = 0; i < Format::kRun; ++i)
      reversed |= (Format::entry(index) >> (i * Format::kBits) & ((1 << Format::kBits) - 1))
                  << ((Format::kRun - 1 - i) * Format::kBits);
    return reversed;
  }
};
template <class Format>
struct IndexWithoutItsHighBit : Again<Format, IndexWithoutItsHighBit<Format>> {
  static constexpr int kEntries = static_cast<int>(std::size(Format::kGrid.entries));
  static int index(const std::byte* block, int run) {
    return Format::index(block, run) & (kEntries / 2 - 1);
  }
};

template <class Format>
class GridFormat : public testing::Test {};
using GridFormats = testing::Types<format::IQ2_XXS, format::IQ2_XS, format::IQ2_S, format::IQ3_XXS,
                                   format::IQ3_S, format::IQ1_S, format::IQ1_M>;
TYPED_TEST_SUITE(GridFormat, GridFormats);

TYPED_TEST(GridFormat, WithOneThingWrongIsSeenByItsGolden) {
  EXPECT_EQ(differing<Unchanged<TypeParam>>(), 0);
  EXPECT_GT(differing<ScaleOfTheNextGroup<TypeParam>>(), 0);
  EXPECT_GT(differing<ScaleWithoutItsHalf<TypeParam>>(), 0);
  EXPECT_GT(differing<ScaleNotParted<TypeParam>>(), 0);
  EXPECT_GT(differing<EntryBackwards<TypeParam>>(), 0);
  EXPECT_GT(differing<IndexWithoutItsHighBit<TypeParam>>(), 0);
  EXPECT_GT(differing<SignsOfTheNextGroup<TypeParam>>(), 0);
  if (TypeParam::kMoves) {
    EXPECT_GT(differing<MovesTheOtherWay<TypeParam>>(), 0);
  } else {
    EXPECT_GT(differing<SignsFromTheHighest<TypeParam>>(), 0);
    EXPECT_GT(differing<EighthSignKept<TypeParam>>(), 0);
    EXPECT_GT(differing<OddSigns<TypeParam>>(), 0);
  }
}

TYPED_TEST(GridFormat, HasAGoldenThatReadsEachEntryOfTheGrid) {
  const BlockGoldenFile golden(*find_format(TypeParam::kDType));
  std::set<int> read;
  constexpr int kRuns = TypeParam::kBlockElements / TypeParam::kRun;
  const std::size_t blocks = golden.values.size() / TypeParam::kBlockElements;
  for (std::size_t b = 0; b < blocks; ++b)
    for (int run = 0; run < kRuns; ++run)
      read.insert(TypeParam::index(golden.blocks() + b * TypeParam::kBlockBytes, run));
  EXPECT_EQ(read.size(), std::size(TypeParam::kGrid.entries));
}

TEST(GridFormat, GivesEightSignsAnEvenNumberOfNegativeOnes) {
  for (int seven = 0; seven < 128; ++seven) {
    const auto signs = static_cast<unsigned>(format::even_signs(seven));
    EXPECT_EQ(signs & 127u, static_cast<unsigned>(seven));
    EXPECT_LT(signs, 256u);
    EXPECT_EQ(std::popcount(signs) % 2, 0) << seven;
  }
}

struct NextCodes : format::NVFP4 {
  static int code(const std::byte* block, int i) {
    return format::doubled_e2m1(
        format::bits(block[kCodesAt + i / 16 * 8 + i % 16 / 2], i % 2 * 4, 4));
  }
};
struct ScaleNotHalved : format::NVFP4 {
  static float scale(const std::byte*) { return 0x1p-9f; }
};
template <int kByte, int kMeans>
struct OtherScaleByte : format::NVFP4 {
  static int group_scale(const std::byte* block, int group) {
    return std::to_integer<int>(block[group]) == kByte ? kMeans : NVFP4::group_scale(block, group);
  }
};

TEST(NVFP4, WithOneThingWrongIsSeenByItsGolden) {
  EXPECT_EQ(differing<format::NVFP4>(), 0);
  EXPECT_GT(differing<NextCodes>(), 0);
  EXPECT_GT(differing<ScaleNotHalved>(), 0);
  EXPECT_GT(differing<ScaleOfTheNextGroup<format::NVFP4>>(), 0);
  EXPECT_GT((differing<OtherScaleByte<127, 15 << 14>>()), 0) << "127 stands for 0";
  EXPECT_GT((differing<OtherScaleByte<255, 0>>()), 0) << "255 is 240";
  EXPECT_GT((differing<OtherScaleByte<1, 9>>()), 0) << "1 is a subnormal";
}

struct NeighbourCodes : format::NF4 {
  static float code(const std::byte* block, int i) {
    return kTable.entries[format::bits(block[kCodesAt + i / 2], i % 2 * 4, 4)];
  }
};
struct HigherHalvesFirst : format::NF4 {
  static float code(const std::byte* block, int i) { return NF4::code(block, i ^ 16); }
};
struct OtherTable : format::NF4 {
  static float code(const std::byte* block, int i) { return format::FP4::code(block, i); }
};

TEST(NF4, WithOneThingWrongIsSeenByItsGolden) {
  EXPECT_EQ(differing<format::NF4>(), 0);
  EXPECT_EQ(differing<format::FP4>(), 0);
  EXPECT_GT(differing<NeighbourCodes>(), 0);
  EXPECT_GT(differing<HigherHalvesFirst>(), 0);
  EXPECT_GT(differing<OtherTable>(), 0);
}

}  // namespace
}  // namespace canopy
