#include "src/convert/block_quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "src/base/error.h"
#include "src/base/half.h"
#include "src/base/weight_format.h"

namespace canopy {
namespace {

constexpr std::size_t kBlock = 32;

std::vector<float> there_and_back(DType type, const std::vector<float>& row) {
  std::vector<std::byte> bytes(row_bytes(type, static_cast<std::int64_t>(row.size())));
  quantize_row(type, row, bytes);
  std::vector<float> back(row.size());
  dequantize_row(type, bytes.data(), back);
  return back;
}

double error_of(const std::vector<float>& row, const std::vector<float>& back) {
  double sum = 0;
  for (std::size_t i = 0; i < row.size(); ++i)
    sum += std::pow(static_cast<double>(row[i]) - static_cast<double>(back[i]), 2);
  return sum;
}

/// Blocks of several kinds: normal, one-sided, with an outlier, nearly constant.
std::vector<float> block(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> x(kBlock);
  for (float& value : x) value = normal(random);
  if (seed % 4 == 1)
    for (float& value : x) value = std::abs(value);
  if (seed % 4 == 2) x[random() % kBlock] *= 10;
  if (seed % 4 == 3)
    for (float& value : x) value = 1 + value / 100;
  return x;
}

/// The usual quantisation: the range alone decides.
std::vector<float> plain(DType type, const std::vector<float>& x) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float extreme = std::abs(*low) > std::abs(*high) ? *low : *high;
  const bool offset = type == DType::kQ4_1;
  const float scale = f32_from_f16(f16_from_f32(offset ? (*high - *low) / 15 : extreme / -8));
  const float minimum = offset ? f32_from_f16(f16_from_f32(*low)) : 0;
  std::vector<float> back;
  for (const float value : x) {
    const float code = std::clamp(std::nearbyint((value - minimum) / scale), offset ? 0.0f : -8.0f,
                                  offset ? 15.0f : 7.0f);
    back.push_back(scale * code + minimum);
  }
  return back;
}

TEST(QuantizeRow, RoundsEightBitsToTheNearestCode) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<float> x = block(seed), back = there_and_back(DType::kQ8_0, x);
    float largest = 0;
    for (const float value : x) largest = std::max(largest, std::abs(value));
    // Half a step; f16 holds the step to 2^-11, which moves 127 steps by 0.06: less than half.
    const float half_step = largest / 127 * (1 + 0x1p-11f) / 2 * (1 + 0x1p-20f);
    for (std::size_t i = 0; i < kBlock; ++i) ASSERT_LE(std::abs(x[i] - back[i]), half_step);
  }
}

TEST(QuantizeRow, IsNeverWorseThanThePlainRangeAndUsuallyMuchBetter) {
  for (const DType type : {DType::kQ4_0, DType::kQ4_1}) {
    double ours = 0, theirs = 0;
    for (std::uint64_t seed = 0; seed < 400; seed += 4) {  // normal blocks, as weights are
      const std::vector<float> x = block(seed);
      ours += error_of(x, there_and_back(type, x));
      theirs += error_of(x, plain(type, x));
    }
    EXPECT_LT(ours, 0.9 * theirs);
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      SCOPED_TRACE(seed);
      const std::vector<float> x = block(seed);
      // Sums of 32 squares in f32 may misjudge two candidates by 32 roundings; a code at a tie may
      // fall either way.
      ASSERT_LE(error_of(x, there_and_back(type, x)), error_of(x, plain(type, x)) * (1 + 1e-4));
    }
  }
}

TEST(QuantizeRow, KeepsWhatTheFormatHoldsExactly) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<float> four(kBlock), offset(kBlock), eight(kBlock);
    for (std::size_t i = 0; i < kBlock; ++i) {
      four[i] = 0.25f * static_cast<float>(static_cast<int>(random() % 16) - 8);
      offset[i] = 0.5f * static_cast<float>(random() % 16) + 3;
      eight[i] = 0.125f * static_cast<float>(static_cast<int>(random() % 255) - 127);
    }
    four[random() % kBlock] = 0.25f * -8;  // the range's ends are taken
    offset[3] = 3, offset[7] = 0.5f * 15 + 3;
    eight[random() % kBlock] = 0.125f * 127;
    EXPECT_EQ(there_and_back(DType::kQ4_0, four), four);
    EXPECT_EQ(there_and_back(DType::kQ4_1, offset), offset);
    EXPECT_EQ(there_and_back(DType::kQ8_0, eight), eight);
  }
  const std::vector<float> zeros(2 * kBlock, 0.0f), ones(kBlock, 1.0f);
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0})
    EXPECT_EQ(there_and_back(type, zeros), zeros);
  EXPECT_EQ(there_and_back(DType::kQ4_1, ones), ones);
}

TEST(QuantizeRow, TreatsEveryBlockAlone) {
  const std::vector<float> a = block(5), b = block(6);
  std::vector<float> both = a;
  both.insert(both.end(), b.begin(), b.end());
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0}) {
    std::vector<float> expected = there_and_back(type, a);
    const std::vector<float> second = there_and_back(type, b);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(there_and_back(type, both), expected);
  }
}

TEST(QuantizeRow, RefusesWhatItCannotHold) {
  std::vector<float> huge(kBlock, 1e9f);
  huge[0] = -1e9f;
  std::vector<std::byte> out(34);
  EXPECT_THROW(quantize_row(DType::kQ8_0, huge, out), Error);
  EXPECT_THROW(quantize_row(DType::kQ8_0, std::vector<float>(31), out), Error);
  EXPECT_THROW(quantize_row(DType::kF16, std::vector<float>(17), out), Error);
  EXPECT_THROW(quantize_row(DType::kQ4_0, std::vector<float>(kBlock), out), Error);
}

}  // namespace
}  // namespace canopy
