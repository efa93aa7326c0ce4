// Rows of FP8 packed by e4m3-levels-512: every code comes back, and a row that contradicts itself
// is not believed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "src/convert/pack/pack_row.h"
#include "tests/convert/any_rows.h"

namespace canopy {
namespace {

using Format = format::LevelsE4M3Rows;
using Row = std::vector<std::uint8_t>;

StoredRow packed_row(const std::vector<std::byte>& bytes, std::size_t columns) {
  static const float kScale = 1;
  return {bytes.data(), bytes.size(), static_cast<std::int64_t>(columns),
          reinterpret_cast<const std::byte*>(&kScale)};
}
Row unpacked(const std::vector<std::byte>& bytes, std::size_t columns) {
  Row out(columns);
  unpack_row(Format::kDType, packed_row(bytes, columns), out);
  return out;
}
std::vector<std::byte> packed(const Row& row) {
  std::vector<std::byte> bytes, by_blocks;
  EXPECT_TRUE(pack_row(Format(), row, bytes));
  EXPECT_TRUE(pack_row(format::LevelsE4M3Blocks(), row, by_blocks));
  EXPECT_EQ(bytes, by_blocks);
  return bytes;
}

/// A row by a scale of its own.
template <class Distribution>
Row drawn(std::size_t columns, Distribution distribution, std::mt19937_64& random) {
  std::vector<float> values(columns);
  float most = 0;
  for (float& value : values) most = std::max(most, std::abs(value = distribution(random)));
  Row row(columns);
  std::ranges::transform(values, row.begin(), [&](float v) {
    return format::e4m3_from_f32(v / most * format::kLargestE4M3);
  });
  return row;
}

TEST(PackFp8Row, GivesEveryCodeBack) {
  std::mt19937_64 random(1);
  for (const std::size_t columns : {1u, 2u, 63u, 64u, 65u, 511u, 512u, 513u, 576u, 4097u}) {
    SCOPED_TRACE(columns);
    const Row normal = drawn(columns, std::normal_distribution<float>(), random);
    EXPECT_EQ(unpacked(packed(normal), columns), normal);
    for (const int code : {0, 0x80, 0x38, 0x7e, 0x7f, 0xff, 1, 0x87}) {
      const Row same(columns, static_cast<std::uint8_t>(code));
      EXPECT_EQ(unpacked(packed(same), columns), same);
      EXPECT_EQ(packed(same).size(), Format::fixed_bytes(std::ssize(same))) << "no tail";
    }
  }
}

TEST(PackFp8Row, GivesAMillionArbitraryPatternsBack) {
  std::mt19937_64 random(21);
  std::size_t patterns = 0;
  for (int i = 0; i < 600; ++i) {
    Row row(1 + random() % 4096);
    // Draws from a few exponents to all, so that levels and exceptions have every share.
    const std::uint64_t width = 1u << random() % 9, begin = random();
    for (std::uint8_t& code : row) code = static_cast<std::uint8_t>(begin + random() % width);
    ASSERT_EQ(unpacked(packed(row), row.size()), row) << i;
    patterns += row.size();
  }
  EXPECT_GT(patterns, 1'000'000u);
}

/// The average over rows of 4096 columns, with 32 bits each for the offset and the scale.
template <class Distribution>
double bits_per_weight(Distribution distribution) {
  std::mt19937_64 random(7);
  constexpr std::size_t kRows = 100, kColumns = 4096;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kRows; ++i)
    bytes += packed(drawn(kColumns, distribution, random)).size() + 8;
  return 8.0 * static_cast<double>(bytes) / (kRows * kColumns);
}
TEST(PackFp8Row, TakesFewBits) {
  EXPECT_LT(bits_per_weight(std::normal_distribution<float>()), 6.9);
  EXPECT_LT(bits_per_weight(std::student_t_distribution<float>(5)), 7.1);
}

TEST(PackFp8Row, RefusesMoreInItsTailsThanItCanCount) {
  Row row(400'000);  // exponents of any size
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::uint8_t>(i * 8);
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(pack_row(Format(), row, bytes));
  EXPECT_EQ(bytes.size(), 8u);
}

TEST(PackFp8Row, NoRowIsLongerThanTheFormatSays) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 2000; ++i) {
    Row row(1 + random() % 1200);
    for (std::uint8_t& code : row) code = static_cast<std::uint8_t>(random());
    const std::size_t bytes = packed(row).size();
    EXPECT_GE(bytes, Format::fixed_bytes(std::ssize(row)));
    EXPECT_LE(bytes, Format::most_bytes(std::ssize(row)));
  }
}

// A block's bits are those of the best of all bases; nibbles then begin at whole bytes.
TEST(PackFp8Row, HasTheBaseWithTheFewestBits) {
  constexpr int kSteps[] = {0, 1, 2, -1, -2};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Row row(1 + random() % 64);  // a group
    const std::uint64_t width = 1 + random() % 8, begin = random() % 16;
    for (std::uint8_t& code : row)
      code = static_cast<std::uint8_t>((begin + random() % width) << 3);
    std::size_t fewest = std::numeric_limits<std::size_t>::max(), bytes = 0;
    for (int base = 0; base < 16; ++base) {
      std::size_t bits = 0, exceptions = 0;
      for (const std::uint8_t code : row) {
        const auto* const step = std::ranges::find_if(
            kSteps, [&](int each) { return ((base + each) & 15) == (code >> 3 & 15); });
        const std::ptrdiff_t at = step - std::begin(kSteps);
        bits += at < 3 ? 0 : at < 5 ? static_cast<std::size_t>(at - 2) : 2;
        if (at == 5) ++exceptions;
      }
      if (bits + 4 * exceptions >= fewest) continue;
      fewest = bits + 4 * exceptions;
      bytes = (bits + 7) / 8 + (exceptions + 1) / 2;
    }
    EXPECT_EQ(packed(row).size(), (Format::fixed_bytes(std::ssize(row)) + bytes + 3) / 4 * 4);
  }
}

// decode_group() defines the format, a group and a bit at a time.
TEST(PackFp8Row, IsUnpackedAsTheFormatSaysDamagedOrNot) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::size_t columns = 1 + random() % 2000;
    std::vector<std::byte> bytes =
        packed(drawn(columns, std::student_t_distribution<float>(2), random));
    for (std::uint64_t damages = random() % 3; damages > 0; --damages)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const StoredRow row = packed_row(bytes, columns);
    Row expected(columns + Format::kGroupColumns);
    for (std::size_t k = 0; k < columns; k += Format::kGroupColumns)
      Format::decode_group(row, static_cast<std::int64_t>(k / Format::kGroupColumns), &expected[k]);
    expected.resize(columns);
    EXPECT_EQ(unpacked(bytes, columns), expected);
    std::vector<float> floats(columns);
    row_as_f32(Format::kDType, row, floats);
    for (std::size_t k = 0; k < columns; ++k) {
      const float weight = format::f32_from_e4m3(expected[k]);
      EXPECT_TRUE(floats[k] == weight || (std::isnan(weight) && std::isnan(floats[k])));
    }
  }
}

/// A row of one block whose tail a test writes: `groups` groups, of whose weights those in `open`
/// have code 3.
std::vector<std::byte> with_tail(std::uint64_t open, const std::vector<int>& tail,
                                 std::size_t groups = 1) {
  std::vector<std::byte> bytes(Format::fixed_bytes(static_cast<std::int64_t>(64 * groups)));
  bytes[0] = std::byte{9};
  for (std::size_t g = 0; g < groups; ++g)
    for (const std::size_t plane : {0u, 8u})
      std::memcpy(&bytes[4 + g * Format::kGroupBytes + plane], &open, sizeof open);
  for (const int byte : tail) bytes.push_back(static_cast<std::byte>(byte));
  bytes.shrink_to_fit();
  return bytes;
}
std::vector<int> exponents(const std::vector<std::byte>& bytes, std::size_t count,
                           std::size_t columns = 64) {
  const Row row = unpacked(bytes, columns);
  std::vector<int> found;
  for (std::size_t i = 0; i < count; ++i) found.push_back(row[i] >> 3 & 15);
  return found;
}

TEST(PackFp8Row, ATailIsReadAsTheFormatSays) {
  EXPECT_EQ(exponents(with_tail(0, {}), 2), (std::vector{9, 9}));
  EXPECT_EQ(exponents(with_tail(1, {0}), 2), (std::vector{8, 9}));
  EXPECT_EQ(exponents(with_tail(1, {0b01}), 2), (std::vector{7, 9}));
  EXPECT_EQ(exponents(with_tail(1, {0b11, 3}), 2), (std::vector{3, 9}));
  EXPECT_EQ(exponents(with_tail(0b111, {0b11111, 0x53}), 4), (std::vector{3, 5, 7, 9}))
      << "levels of 3 and 3 weights, the third closed by the second";
  EXPECT_EQ(exponents(with_tail(0b111, {0b111111, 0x53, 0x01}), 4), (std::vector{3, 5, 1, 9}));
  const Row two = unpacked(with_tail(1, {0b1111, 0x0c, 0x0d}, 2), 128);
  EXPECT_EQ(two[0] >> 3, 12) << "exceptions of each group begin at a byte";
  EXPECT_EQ(two[64] >> 3, 13);
  std::vector<std::byte> low = with_tail(1, {0});
  low[0] = std::byte{0};
  EXPECT_EQ(exponents(low, 2), (std::vector{15, 0})) << "counted modulo 16";
  std::vector<std::byte> rest = with_tail(0, {});
  rest[4 + 16] = std::byte{0xd3};
  const Row row = unpacked(rest, 64);
  EXPECT_EQ(row[0], 9 << 3 | 3);
  EXPECT_EQ(row[32], 0x80 | 9 << 3 | 5);
}

std::ptrdiff_t lost(const std::vector<std::byte>& bytes, std::size_t columns) {
  return std::ranges::count(unpacked(bytes, columns), format::kE4M3NaN);
}
// A damaged row gives NaN for the blocks that contradict themselves, and reads nothing outside it
// (which the address sanitizer sees: the row is a heap block of its own).
TEST(PackFp8Row, ContradictionsBecomeNaN) {
  EXPECT_EQ(lost(with_tail(1, {0b11, 3}), 64), 0);
  EXPECT_EQ(lost(with_tail(1, {}), 64), 64) << "levels without bits";
  EXPECT_EQ(lost(with_tail(1, {0b11}), 64), 64) << "an exception that is not there";
  EXPECT_EQ(lost(with_tail(~std::uint64_t{0}, {1, 2, 3, 4}), 64), 64) << "a level past the tail";
  EXPECT_EQ(lost(with_tail(1, {0, 0, 0, 0}), 64), 0) << "zeros up to four bytes";
  EXPECT_EQ(lost(with_tail(1, {0, 0, 0, 0, 0}), 64), 64) << "a tail that nobody asks for";

  std::mt19937_64 random(9);
  const std::size_t columns = 1100;  // three blocks
  const std::vector<std::byte> good =
      packed(drawn(columns, std::student_t_distribution<float>(3), random));
  ASSERT_EQ(lost(good, columns), 0);
  const auto with = [&](std::size_t at, int value) {
    std::vector<std::byte> bytes = good;
    bytes.at(at) = static_cast<std::byte>(value);
    return lost(bytes, columns);
  };
  EXPECT_EQ(with(0, 16), 512) << "a base that no exponent has";
  EXPECT_EQ(with(1, 1), 512) << "a byte that must be zero";
  EXPECT_EQ(with(2 * 4 + 3, 0xff), 588) << "where the last tail begins";
  EXPECT_EQ(with(4 + 3, 0xff), 1024) << "where the second begins: tails do not rise";
  std::vector<std::byte> more = good;
  std::fill_n(more.begin() + 12, Format::kCodeBytes, std::byte{0xff});
  EXPECT_EQ(lost(more, columns), 512) << "codes that leave more open";
  std::vector<std::byte> shorter(good.begin(), good.end() - 4);
  shorter.shrink_to_fit();
  EXPECT_GE(lost(shorter, columns), 76) << "a tail cut off";
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 4);
  EXPECT_EQ(lost(longer, columns), 76) << "a tail that nobody asks for";
}

TEST(PackFp8Row, AnyBytesAtAll) {
  canopy::testing::for_any_rows<Format>(
      [](const auto& bytes, std::size_t columns) { unpacked(bytes, columns); });
}

}  // namespace
}  // namespace canopy
