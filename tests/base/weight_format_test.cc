#include "src/base/formats/weight_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/formats/block_scales.h"
#include "tests/base/block_golden.h"

namespace canopy {
namespace {

TEST(RowBytes, CountsWholeBlocksAndRefusesParts) {
  EXPECT_EQ(row_bytes(DType::kF32, 7), 28u);
  EXPECT_EQ(row_bytes(DType::kBF16, 7), 14u);
  EXPECT_EQ(row_bytes(DType::kQ8_0, 64), 68u);
  EXPECT_EQ(row_bytes(DType::kQ4_0, 64), 36u);
  EXPECT_EQ(row_bytes(DType::kQ4_1, 64), 40u);
  EXPECT_EQ(row_bytes(DType::kI32, 3), 12u);
  EXPECT_THROW(row_bytes(DType::kQ4_0, 33), Error);
  EXPECT_THROW(row_bytes(DType::kF32, -1), Error);
  EXPECT_THROW(row_bytes(DType::kF32, std::numeric_limits<std::int64_t>::max()), Error);
}

TEST(WeightFormat, ReadsBlocksAsGgufDefinesThem) {
  std::vector<std::byte> block(34);
  std::vector<float> out(32);
  block[1] = std::byte{0x40};  // f16 2.0
  for (int i = 0; i < 32; ++i)
    block[static_cast<std::size_t>(2 + i)] = static_cast<std::byte>(i - 16);
  dequantize_row(DType::kQ8_0, block.data(), out);
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(out[static_cast<std::size_t>(i)], 2.0f * static_cast<float>(i - 16));
  for (int i = 0; i < 16; ++i)  // value i in the low half, 15 - i in the high one
    block[static_cast<std::size_t>(2 + i)] = static_cast<std::byte>(i | (15 - i) << 4);
  dequantize_row(DType::kQ4_0, block.data(), out);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[static_cast<std::size_t>(i)], 2.0f * static_cast<float>(i - 8));
    EXPECT_EQ(out[static_cast<std::size_t>(16 + i)], 2.0f * static_cast<float>(7 - i));
  }
  block[2] = std::byte{0}, block[3] = std::byte{0xbc};  // minimum -1.0
  for (int i = 0; i < 16; ++i)
    block[static_cast<std::size_t>(4 + i)] = static_cast<std::byte>(i | (15 - i) << 4);
  dequantize_row(DType::kQ4_1, block.data(), out);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[static_cast<std::size_t>(i)], 2.0f * static_cast<float>(i) - 1.0f);
    EXPECT_EQ(out[static_cast<std::size_t>(16 + i)], 2.0f * static_cast<float>(15 - i) - 1.0f);
  }
  EXPECT_THROW(dequantize_row(DType::kI32, block.data(), out), Error);
  EXPECT_THROW(dequantize_row(DType::kQ4_0, block.data(), std::span(out).first(31)), Error);
}

class BlockGolden : public testing::TestWithParam<WeightFormat> {};

TEST_P(BlockGolden, EqualsWhatTheGgufPackageDequantises) {
  const WeightFormat format = GetParam();
  const auto elements = static_cast<std::size_t>(format.block_elements);
  const BlockGoldenFile golden(format);
  std::vector<float> values(golden.values.size());
  dequantize_row(format.dtype, golden.blocks(), values);
  // All products are exact and the one sum is rounded once: no two ways differ, but in the sign of
  // a zero.
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], golden.values[i])
        << "block " << i / elements << ", element " << i % elements;
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockGolden, testing::ValuesIn(as_data(BlockFormats())),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RandomScales, GiveRandomBlocksTheDeviationAndNoMean) {
  std::mt19937 random(3);
  for (const WeightFormat& format : as_data(BlockFormats())) {
    SCOPED_TRACE(format.name);
    std::vector<std::byte> bytes(format.block_bytes * 512);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    std::vector<float> values(512 * static_cast<std::size_t>(format.block_elements));
    bool has_minimum = false, coarse = false;
    visit_format(BlockFormats(), format.dtype, [&]<class Format>(Format) {
      has_minimum = Format::kMinimumAt >= 0;
      coarse = std::is_same_v<Format, format::MXFP4> || kScalesAreSet<Format>;
      const BlockScales scales = random_scales<Format>(bytes, 0.02);
      for (std::size_t at = 0; at < bytes.size(); at += Format::kBlockBytes)
        put_scales<Format>(scales, &bytes[at]);
    });
    dequantize_row(format.dtype, bytes.data(), values);
    double sum = 0, squares = 0;
    for (const float value : values)
      sum += static_cast<double>(value),
          squares += static_cast<double>(value) * static_cast<double>(value);
    const auto n = static_cast<double>(values.size());
    // f16 rounds scale and minimum by 2^-12 each; the means of their parts are below twice the
    // deviation.
    const double deviation = std::sqrt(squares / n);
    if (coarse)
      EXPECT_LE(std::abs(std::log2(deviation / 0.02)),
                0.5);  // the nearest power of two, or closer; of groups, neighbours
    else
      EXPECT_NEAR(deviation, 0.02, 0.02 * 0x1p-9);
    if (has_minimum) {
      EXPECT_NEAR(sum / n, 0, 0.02 * 0x1p-9);
    }
  }
}

}  // namespace
}  // namespace canopy
