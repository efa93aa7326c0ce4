#include "src/convert/pack/pack_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "src/base/formats/half.h"

namespace canopy {
namespace {

using Format = format::PackedBF16;
using Row = std::vector<std::uint16_t>;

StoredRow packed_row(const std::vector<std::byte>& bytes, std::size_t columns) {
  return {bytes.data(), bytes.size(), static_cast<std::int64_t>(columns)};
}
Row unpacked(const std::vector<std::byte>& bytes, std::size_t columns) {
  Row out(columns);
  unpack_row(DType::kPackedBF16, packed_row(bytes, columns), out);
  return out;
}
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
template <class Draw>
double bits_per_weight(const Draw& draw) {
  std::mt19937_64 random(7);
  constexpr std::size_t kRows = 200, kColumns = 4096;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kRows; ++i) bytes += packed(draw(kColumns, random)).size() + 4;
  return 8.0 * static_cast<double>(bytes) / (kRows * kColumns);
}

TEST(PackRow, GivesEveryBitBack) {
  std::mt19937_64 random(1);
  for (const std::size_t columns : {1u, 2u, 63u, 64u, 65u, 511u, 512u, 513u, 576u, 4097u}) {
    SCOPED_TRACE(columns);
    const Row normal = drawn(columns, std::normal_distribution<float>(), random);
    EXPECT_EQ(unpacked(packed(normal), columns), normal);
    Row any(columns);  // NaN payloads, infinities, subnormals, zeros of both signs
    for (std::uint16_t& bits : any) bits = static_cast<std::uint16_t>(random());
    EXPECT_EQ(unpacked(packed(any), columns), any);
    for (const int bits : {0, 0x8000, 0x3f80, 0x7f80, 0xff80, 0x7fc1, 0xffff, 1, 0x807f}) {
      const Row same(columns, static_cast<std::uint16_t>(bits));
      EXPECT_EQ(unpacked(packed(same), columns), same);
      EXPECT_EQ(packed(same).size(), (Format::fixed_bytes(std::ssize(same)) + 3) / 4 * 4)
          << "one exponent fits any window";
    }
  }
}

TEST(PackRow, EveryExponentFitsSomewhere) {
  Row row(1 << 16);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::uint16_t>(i);
  EXPECT_EQ(unpacked(packed(row), row.size()), row);
  std::ranges::reverse(row);
  EXPECT_EQ(unpacked(packed(row), row.size()), row);
}

// The entropies are 10.55, 10.67 and 10.83 bits.
TEST(PackRow, TakesFewBits) {
  EXPECT_LT(bits_per_weight([](std::size_t n, auto& random) {
              return drawn(n, std::normal_distribution<float>(), random);
            }),
            11.3);
  EXPECT_LT(bits_per_weight([](std::size_t n, auto& random) {
              return drawn(n, std::student_t_distribution<float>(5), random);
            }),
            11.4);
  EXPECT_LT(bits_per_weight([](std::size_t n, auto& random) {
              return drawn(
                  n,
                  [](auto& r) {
                    const float size = std::exponential_distribution<float>()(r);
                    return r() % 2 ? size : -size;
                  },
                  random);
            }),
            11.5);
}

TEST(PackRow, RowsFollowEachOther) {
  std::mt19937_64 random(3);
  std::vector<std::byte> bytes;
  const Row a = drawn(700, std::normal_distribution<float>(), random),
            b = drawn(700, std::cauchy_distribution<float>(), random);
  ASSERT_TRUE(pack_row(Format(), a, bytes));
  const std::size_t second = bytes.size();
  EXPECT_EQ(second % kPackedAlignment, 0u);
  ASSERT_TRUE(pack_row(Format(), b, bytes));
  Row out(b.size());
  unpack_row(DType::kPackedBF16, {bytes.data() + second, bytes.size() - second, 700}, out);
  EXPECT_EQ(out, b);
}

TEST(PackRow, RefusesMoreExceptionsThanItCanCount) {
  Row row(200'000);  // every second exponent is far from the others
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<std::uint16_t>(i % 2 ? i % 251 << 7 : 0x3f80);
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(pack_row(Format(), row, bytes));
  EXPECT_EQ(bytes.size(), 8u);
}

TEST(PackedRow, FloatsAreTheSameValues) {
  std::mt19937_64 random(5);
  const Row row = drawn(777, std::normal_distribution<float>(), random);
  const std::vector<std::byte> bytes = packed(row);
  std::vector<float> out(row.size());
  row_as_f32(DType::kPackedBF16, packed_row(bytes, row.size()), out);
  for (std::size_t i = 0; i < row.size(); ++i) EXPECT_EQ(out[i], f32_from_bf16(row[i]));
}

// decode_group() defines the format, a group and a bit at a time.
TEST(PackedRow, IsUnpackedAsTheFormatSaysDamagedOrNot) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const std::size_t columns = 1 + random() % 2000;
    std::vector<std::byte> bytes =
        packed(drawn(columns, std::student_t_distribution<float>(2), random));
    for (std::uint64_t damages = random() % 3; damages > 0; --damages)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    Row expected(columns + Format::kGroupColumns);
    for (std::size_t k = 0; k < columns; k += Format::kGroupColumns)
      Format::decode_group(packed_row(bytes, columns),
                           static_cast<std::int64_t>(k / Format::kGroupColumns), &expected[k]);
    expected.resize(columns);
    EXPECT_EQ(unpacked(bytes, columns), expected);
  }
}

/// Counts the weights that are NaN.
std::ptrdiff_t lost(const std::vector<std::byte>& bytes, std::size_t columns) {
  return std::ranges::count_if(unpacked(bytes, columns),
                               [](std::uint16_t bits) { return std::isnan(f32_from_bf16(bits)); });
}

// A damaged row gives NaN for the blocks that contradict themselves, and reads nothing outside it
// (which the address sanitizer sees: the row is a heap block of its own).
TEST(PackedRow, ContradictionsBecomeNaN) {
  std::mt19937_64 random(9);
  const std::size_t columns = 1100;  // three blocks
  const Row row = drawn(columns, std::student_t_distribution<float>(3), random);
  const std::vector<std::byte> good = packed(row);
  ASSERT_EQ(lost(good, columns), 0);
  const auto with = [&](std::size_t at, int value) {
    std::vector<std::byte> bytes = good;
    bytes.at(at) = static_cast<std::byte>(value);
    return bytes;
  };
  EXPECT_EQ(lost(with(0, 250), columns), 512) << "a window past the last exponent";
  EXPECT_EQ(lost(with(1, 1), columns), 512) << "a byte that must be zero";
  EXPECT_EQ(lost(with(2 * 4 + 3, 0xff), columns), 588) << "the count before the last block";
  EXPECT_EQ(lost(with(4 + 3, 0xff), columns), 1024) << "the count before the second";
  std::vector<std::byte> more = good;
  std::fill_n(more.begin() + 12, Format::kCodeBytes, std::byte{0xff});
  EXPECT_EQ(lost(more, columns), 512) << "codes that ask for more exceptions";
  std::vector<std::byte> shorter(good.begin(), good.end() - 4);
  shorter.shrink_to_fit();
  EXPECT_GE(lost(shorter, columns), 76) << "exceptions cut off";
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 4);
  EXPECT_EQ(lost(longer, columns), 76) << "exceptions that nobody asks for";
}

TEST(PackedRow, AnyBytesAtAll) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t columns = 1 + random() % 1200;
    std::vector<std::byte> bytes(Format::fixed_bytes(static_cast<std::int64_t>(columns)) +
                                 random() % 300);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    bytes.shrink_to_fit();
    unpacked(bytes, columns);
  }
}

}  // namespace
}  // namespace canopy
