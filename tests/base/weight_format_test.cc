#include "src/base/weight_format.h"

#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <vector>

#include "src/base/error.h"

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

}  // namespace
}  // namespace canopy
