#include "src/convert/pack/pack_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>

#include "src/base/formats/half.h"
#include "tests/convert/any_rows.h"

namespace canopy {
namespace {

using Window = format::PackedBF16;
using Levels = format::LevelsBF16;
using Row = std::vector<std::uint16_t>;

StoredRow packed_row(const std::vector<std::byte>& bytes, std::size_t columns) {
  return {bytes.data(), bytes.size(), static_cast<std::int64_t>(columns)};
}
template <class Format>
Row unpacked(const std::vector<std::byte>& bytes, std::size_t columns) {
  Row out(columns);
  unpack_row(Format::kDType, packed_row(bytes, columns), out);
  return out;
}
template <class Format>
std::vector<std::byte> packed(const Row& row) {
  std::vector<std::byte> bytes;
  EXPECT_TRUE(pack_row(Format(), row, bytes));
  return bytes;
}

template <class Distribution>
Row drawn(std::size_t columns, Distribution distribution, std::mt19937_64& random) {
  Row row(columns);
  for (std::uint16_t& bits : row)
    bits = bf16_from_f32(0.02f * static_cast<float>(distribution(random)));
  return row;
}

/// The average over rows of 4096 columns, with 32 bits for the offset of a row.
template <class Format, class Draw>
double bits_per_weight(const Draw& draw) {
  std::mt19937_64 random(7);
  constexpr std::size_t kRows = 200, kColumns = 4096;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kRows; ++i)
    bytes += packed<Format>(draw(kColumns, random)).size() + 4;
  return 8.0 * static_cast<double>(bytes) / (kRows * kColumns);
}

template <class Format>
class PackRow : public ::testing::Test {};
using Formats = ::testing::Types<Window, Levels>;
TYPED_TEST_SUITE(PackRow, Formats);

TYPED_TEST(PackRow, GivesEveryBitBack) {
  using Format = TypeParam;
  std::mt19937_64 random(1);
  for (const std::size_t columns : {1u, 2u, 63u, 64u, 65u, 511u, 512u, 513u, 576u, 4097u}) {
    SCOPED_TRACE(columns);
    const Row normal = drawn(columns, std::normal_distribution<float>(), random);
    EXPECT_EQ(unpacked<Format>(packed<Format>(normal), columns), normal);
    Row any(columns);  // NaN payloads, infinities, subnormals, zeros of both signs
    for (std::uint16_t& bits : any) bits = static_cast<std::uint16_t>(random());
    EXPECT_EQ(unpacked<Format>(packed<Format>(any), columns), any);
    for (const int bits : {0, 0x8000, 0x3f80, 0x7f80, 0xff80, 0x7fc1, 0xffff, 1, 0x807f}) {
      const Row same(columns, static_cast<std::uint16_t>(bits));
      EXPECT_EQ(unpacked<Format>(packed<Format>(same), columns), same);
      EXPECT_EQ(packed<Format>(same).size(), (Format::fixed_bytes(std::ssize(same)) + 3) / 4 * 4)
          << "one exponent fits any window";
    }
  }
}

TYPED_TEST(PackRow, GivesAMillionArbitraryPatternsBack) {
  using Format = TypeParam;
  std::mt19937_64 random(21);
  for (int i = 0; i < 500; ++i) {
    Row row(1 + random() % 4096);
    // Draws from a few exponents to all, so that levels and exceptions have every share.
    const auto width = static_cast<std::uint16_t>(1u << random() % 17),
               begin = static_cast<std::uint16_t>(random());
    for (std::uint16_t& bits : row)
      bits = static_cast<std::uint16_t>(begin + (width == 0 ? random() : random() % width));
    ASSERT_EQ(unpacked<Format>(packed<Format>(row), row.size()), row) << i;
  }
}

TYPED_TEST(PackRow, EveryExponentFitsSomewhere) {
  using Format = TypeParam;
  Row row(1 << 16);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::uint16_t>(i);
  EXPECT_EQ(unpacked<Format>(packed<Format>(row), row.size()), row);
  std::ranges::reverse(row);
  EXPECT_EQ(unpacked<Format>(packed<Format>(row), row.size()), row);
}

// The entropies are 10.55, 10.67 and 10.83 bits.
TYPED_TEST(PackRow, TakesFewBits) {
  using Format = TypeParam;
  constexpr bool kWindow = std::is_same_v<Format, Window>;
  EXPECT_LT(bits_per_weight<Format>([](std::size_t n, auto& random) {
              return drawn(n, std::normal_distribution<float>(), random);
            }),
            kWindow ? 11.3 : 10.8);
  EXPECT_LT(bits_per_weight<Format>([](std::size_t n, auto& random) {
              return drawn(n, std::student_t_distribution<float>(5), random);
            }),
            kWindow ? 11.4 : 11.0);
  EXPECT_LT(bits_per_weight<Format>([](std::size_t n, auto& random) {
              return drawn(
                  n,
                  [](auto& r) {
                    const float size = std::exponential_distribution<float>()(r);
                    return r() % 2 ? size : -size;
                  },
                  random);
            }),
            kWindow ? 11.5 : 11.25);
}

TYPED_TEST(PackRow, RowsFollowEachOther) {
  using Format = TypeParam;
  std::mt19937_64 random(3);
  std::vector<std::byte> bytes;
  const Row a = drawn(700, std::normal_distribution<float>(), random),
            b = drawn(700, std::cauchy_distribution<float>(), random);
  ASSERT_TRUE(pack_row(Format(), a, bytes));
  const std::size_t second = bytes.size();
  EXPECT_EQ(second % kPackedAlignment, 0u);
  ASSERT_TRUE(pack_row(Format(), b, bytes));
  Row out(b.size());
  unpack_row(Format::kDType, {bytes.data() + second, bytes.size() - second, 700}, out);
  EXPECT_EQ(out, b);
}

TYPED_TEST(PackRow, RefusesMoreExceptionsThanItCanCount) {
  using Format = TypeParam;
  Row row(200'000);  // every second exponent is far from the others
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<std::uint16_t>(i % 2 ? i % 251 << 7 : 0x3f80);
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(pack_row(Format(), row, bytes));
  EXPECT_EQ(bytes.size(), 8u);
}

TYPED_TEST(PackRow, FloatsAreTheSameValues) {
  using Format = TypeParam;
  std::mt19937_64 random(5);
  const Row row = drawn(777, std::normal_distribution<float>(), random);
  const std::vector<std::byte> bytes = packed<Format>(row);
  std::vector<float> out(row.size());
  row_as_f32(Format::kDType, packed_row(bytes, row.size()), out);
  for (std::size_t i = 0; i < row.size(); ++i) EXPECT_EQ(out[i], f32_from_bf16(row[i]));
}

// decode_group() defines the format, a group and a bit at a time.
TYPED_TEST(PackRow, IsUnpackedAsTheFormatSaysDamagedOrNot) {
  using Format = TypeParam;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::size_t columns = 1 + random() % 2000;
    std::vector<std::byte> bytes =
        packed<Format>(drawn(columns, std::student_t_distribution<float>(2), random));
    for (std::uint64_t damages = random() % 3; damages > 0; --damages)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    Row expected(columns + Format::kGroupColumns);
    for (std::size_t k = 0; k < columns; k += Format::kGroupColumns)
      Format::decode_group(packed_row(bytes, columns),
                           static_cast<std::int64_t>(k / Format::kGroupColumns), &expected[k]);
    expected.resize(columns);
    EXPECT_EQ(unpacked<Format>(bytes, columns), expected);
  }
}

/// Counts the weights that are NaN.
template <class Format>
std::ptrdiff_t lost(const std::vector<std::byte>& bytes, std::size_t columns) {
  return std::ranges::count_if(unpacked<Format>(bytes, columns),
                               [](std::uint16_t bits) { return std::isnan(f32_from_bf16(bits)); });
}

// A damaged row gives NaN for the blocks that contradict themselves, and reads nothing outside it
// (which the address sanitizer sees: the row is a heap block of its own).
TEST(PackedRow, ContradictionsBecomeNaN) {
  using Format = Window;
  std::mt19937_64 random(9);
  const std::size_t columns = 1100;  // three blocks
  const Row row = drawn(columns, std::student_t_distribution<float>(3), random);
  const std::vector<std::byte> good = packed<Format>(row);
  ASSERT_EQ(lost<Format>(good, columns), 0);
  const auto with = [&](std::size_t at, int value) {
    std::vector<std::byte> bytes = good;
    bytes.at(at) = static_cast<std::byte>(value);
    return bytes;
  };
  EXPECT_EQ(lost<Format>(with(0, 250), columns), 512) << "a window past the last exponent";
  EXPECT_EQ(lost<Format>(with(1, 1), columns), 512) << "a byte that must be zero";
  EXPECT_EQ(lost<Format>(with(2 * 4 + 3, 0xff), columns), 588) << "the count before the last block";
  EXPECT_EQ(lost<Format>(with(4 + 3, 0xff), columns), 1024) << "the count before the second";
  std::vector<std::byte> more = good;
  std::fill_n(more.begin() + 12, Format::kCodeBytes, std::byte{0xff});
  EXPECT_EQ(lost<Format>(more, columns), 512) << "codes that ask for more exceptions";
  std::vector<std::byte> shorter(good.begin(), good.end() - 4);
  shorter.shrink_to_fit();
  EXPECT_GE(lost<Format>(shorter, columns), 76) << "exceptions cut off";
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 4);
  EXPECT_EQ(lost<Format>(longer, columns), 76) << "exceptions that nobody asks for";
}

// Also where no weight asks for anything of a tail.
TYPED_TEST(PackRow, HeadersAreCheckedAlways) {
  using Format = TypeParam;
  const Row same(1024, 0x3f80);  // two blocks without tails
  std::vector<std::byte> bytes = packed<Format>(same);
  ASSERT_EQ(bytes.size(), Format::fixed_bytes(1024));
  bytes[1] = std::byte{1};
  EXPECT_EQ(lost<Format>(bytes, 1024), 512) << "a byte that must be zero";
  bytes[1] = std::byte{0};
  bytes.resize(bytes.size() + kPackedAlignment);
  bytes[Format::kHeaderBytes + 2] = std::byte{1};
  EXPECT_EQ(lost<Format>(bytes, 1024), 512) << "a byte between two tails";
}

// A block's bits are those of the best of all bases.
TEST(LevelsRow, HasTheBaseWithTheFewestBits) {
  constexpr int kSteps[] = {0, 1, 2, -1, 3, -2, -3, -4};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Row row(1 + random() % 512);
    const std::uint64_t width = 1 + random() % 24, begin = random() % 232;
    for (std::uint16_t& bits : row) {
      const std::uint64_t exponent = random() % 8 == 0 ? random() % 256 : begin + random() % width;
      bits = static_cast<std::uint16_t>(exponent << 7);
    }
    std::size_t fewest = std::numeric_limits<std::size_t>::max();
    for (int base = 0; base < 256; ++base) {
      std::size_t bits = 0;
      for (const std::uint16_t value : row) {
        const auto* const step = std::ranges::find(kSteps, (value >> 7) - base);
        const std::ptrdiff_t code = step - std::begin(kSteps);
        bits += code < 3 ? 0 : code < 8 ? static_cast<std::size_t>(code - 2) : 5 + 8;
      }
      fewest = std::min(fewest, bits);
    }
    const std::size_t bytes = Levels::fixed_bytes(std::ssize(row)) + (fewest + 7) / 8;
    EXPECT_EQ(packed<Levels>(row).size(), (bytes + 3) / 4 * 4);
  }
}

/// A row of one block whose tail a test writes: 64 weights, of which the first `open` have code 3.
std::vector<std::byte> with_tail(int open, const std::vector<int>& tail) {
  std::vector<std::byte> bytes(Levels::fixed_bytes(64));
  bytes[0] = std::byte{100};
  const std::uint64_t mask = open == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << open) - 1;
  for (const std::size_t plane : {0u, 8u}) std::memcpy(&bytes[4 + plane], &mask, sizeof mask);
  for (const int byte : tail) bytes.push_back(static_cast<std::byte>(byte));
  bytes.shrink_to_fit();
  return bytes;
}
std::vector<int> exponents(const std::vector<std::byte>& bytes, int count) {
  std::vector<int> found;
  const Row row = unpacked<Levels>(bytes, 64);
  for (int p = 0; p < count; ++p)
    found.push_back(row[static_cast<std::size_t>(Levels::weight_at(p))] >> 7);
  return found;
}

// Bits of a level follow those of the level before, and exceptions begin at the next byte.
TEST(LevelsRow, ATailIsReadAsTheFormatSays) {
  EXPECT_EQ(exponents(with_tail(0, {}), 2), (std::vector{100, 100}));
  EXPECT_EQ(exponents(with_tail(1, {0}), 2), (std::vector{99, 100}));
  EXPECT_EQ(exponents(with_tail(1, {0b1}), 2), (std::vector{103, 100}));
  EXPECT_EQ(exponents(with_tail(1, {0b11}), 2), (std::vector{98, 100}));
  EXPECT_EQ(exponents(with_tail(1, {0b111}), 2), (std::vector{97, 100}));
  EXPECT_EQ(exponents(with_tail(1, {0b1111}), 2), (std::vector{96, 100}));
  EXPECT_EQ(exponents(with_tail(1, {0b11111, 7}), 2), (std::vector{7, 100}));
  EXPECT_EQ(exponents(with_tail(3, {0b01111101, 0b11, 9}), 4), (std::vector{97, 99, 9, 100}))
      << "levels of 3, 2, 2, 2 and 1 weights";
  std::vector<std::byte> low = with_tail(1, {0});
  low[0] = std::byte{0};
  EXPECT_EQ(exponents(low, 2), (std::vector{255, 0})) << "counted modulo 256";
}

// Expects NaN, as of a window, and that nothing outside of the row is read.
TEST(LevelsRow, ContradictionsBecomeNaN) {
  const auto lost_of = [](int open, const std::vector<int>& tail) {
    return lost<Levels>(with_tail(open, tail), 64);
  };
  EXPECT_EQ(lost_of(1, {0b11111, 7}), 0);
  EXPECT_EQ(lost_of(1, {}), 64) << "levels without bits";
  EXPECT_EQ(lost_of(1, {0b11111}), 64) << "an exception that is not there";
  EXPECT_EQ(lost_of(64, {1, 2, 3, 4, 5, 6, 7}), 64) << "a level that ends past the tail";
  EXPECT_EQ(lost_of(1, {0, 0, 0, 0}), 0) << "zeros up to four bytes";
  EXPECT_EQ(lost_of(1, {0, 0, 0, 0, 0}), 64) << "a tail that nobody asks for";

  std::mt19937_64 random(9);
  const std::size_t columns = 1100;  // three blocks
  const std::vector<std::byte> good =
      packed<Levels>(drawn(columns, std::student_t_distribution<float>(3), random));
  ASSERT_EQ(lost<Levels>(good, columns), 0);
  const auto with = [&](std::size_t at, int value) {
    std::vector<std::byte> bytes = good;
    bytes.at(at) = static_cast<std::byte>(value);
    return lost<Levels>(bytes, columns);
  };
  EXPECT_EQ(with(1, 1), 512) << "a byte that must be zero";
  EXPECT_EQ(with(2 * 4 + 3, 0xff), 588) << "where the last tail begins";
  EXPECT_EQ(with(4 + 3, 0xff), 1024) << "where the second begins: tails do not rise";
  std::vector<std::byte> more = good;
  std::fill_n(more.begin() + 12, Levels::kCodeBytes, std::byte{0xff});
  EXPECT_EQ(lost<Levels>(more, columns), 512) << "codes that leave more open";
  std::vector<std::byte> shorter(good.begin(), good.end() - 4);
  shorter.shrink_to_fit();
  EXPECT_GE(lost<Levels>(shorter, columns), 76) << "a tail cut off";
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 4);
  EXPECT_EQ(lost<Levels>(longer, columns), 76) << "a tail that nobody asks for";
}

TYPED_TEST(PackRow, AnyBytesAtAll) {
  using Format = TypeParam;
  canopy::testing::for_any_rows<Format>(
      [](const auto& bytes, std::size_t columns) { unpacked<Format>(bytes, columns); });
}

}  // namespace
}  // namespace canopy
