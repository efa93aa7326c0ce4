#include "kernels/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/convert.h"
#include "src/base/error.h"

namespace canopy {
namespace {

TEST(RowBytes, CountsWholeBlocksAndRefusesParts) {
  EXPECT_EQ(row_bytes(DType::kF32, 7), 28u);
  EXPECT_EQ(row_bytes(DType::kBF16, 7), 14u);
  EXPECT_EQ(row_bytes(DType::kQ8_0, 64), 68u);
  EXPECT_EQ(row_bytes(DType::kQ4_0, 64), 36u);
  EXPECT_EQ(row_bytes(DType::kQ4_1, 64), 40u);
  EXPECT_EQ(row_bytes(DType::kQ4_K, 512), 288u);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 512), 420u);
  EXPECT_THROW(row_bytes(DType::kQ4_0, 33), Error);
  EXPECT_THROW(row_bytes(DType::kQ6_K, 32), Error);
  EXPECT_THROW(row_bytes(DType::kF32, -1), Error);
  EXPECT_THROW(row_bytes(DType::kF32, std::numeric_limits<std::int64_t>::max()), Error);
}

TEST(View, RefusesShapesThatOverflowOrMakeNoSense) {
  std::byte byte{};
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW(TensorView(&byte, DType::kF32, {huge, huge}), Error);
  EXPECT_THROW(TensorView(&byte, DType::kF32, {2, -1}), Error);
  EXPECT_THROW(TensorView(&byte, DType::kF32, {}), Error);
  EXPECT_THROW(TensorView(&byte, DType::kF32, {1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(TensorView(&byte, DType::kQ8_0, {2, 16}), Error);
}

TEST(View, RowsShareStorageAndStayInRange) {
  std::vector<std::byte> data(6 * 36);
  const TensorView whole(data.data(), DType::kQ4_0, {6, 64});
  const ConstTensorView part = whole.rows(2, 3);
  EXPECT_EQ(part.data(), data.data() + 72);
  EXPECT_EQ(part.dim(0), 3);
  EXPECT_EQ(part.bytes(), 108u);
  EXPECT_EQ(whole.rows(6, 0).bytes(), 0u);
  EXPECT_THROW(whole.rows(5, 2), Error);
  EXPECT_THROW(whole.rows(-1, 2), Error);
  EXPECT_THROW(whole.rows(1, std::numeric_limits<std::int64_t>::max()), Error);
  EXPECT_THROW(ConstTensorView().rows(0, 0), Error);
  EXPECT_EQ(ConstTensorView(data.data(), DType::kF32, {10}).rows(3, 2).data(), data.data() + 12);
}

TEST(Convert, EveryHalfSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (std::isnan(f32_from_f16(half))) {
      EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(f32_from_f16(half)))));
    } else {
      ASSERT_EQ(f16_from_f32(f32_from_f16(half)), half);
    }
    if (std::isnan(f32_from_bf16(half))) {
      EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(f32_from_bf16(half)))));
    } else {
      ASSERT_EQ(bf16_from_f32(f32_from_bf16(half)), half);
    }
  }
}

TEST(Convert, RoundsToNearestTiesToEven) {
  // Between every two neighbours: the midpoint goes to the even one, its neighbours to the nearer.
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float low = f32_from_f16(half), high = f32_from_f16(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    const auto even = static_cast<std::uint16_t>(bits + bits % 2);
    ASSERT_EQ(f16_from_f32(middle), even) << bits;
    ASSERT_EQ(f16_from_f32(std::nextafter(middle, 0.0f)), half) << bits;
    ASSERT_EQ(f16_from_f32(-std::nextafter(middle, 1e9f)), (bits + 1) | 0x8000) << bits;
  }
  EXPECT_EQ(f16_from_f32(65519.996f), 0x7bff);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_f32(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7f80);
}

TEST(Convert, ReadsBlocksAsGgufDefinesThem) {
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
  std::vector<float> large(256);
  EXPECT_THROW(dequantize_row(DType::kQ4_K, block.data(), large), Error);
  EXPECT_THROW(dequantize_row(DType::kQ4_0, block.data(), std::span(out).first(31)), Error);
}

}  // namespace
}  // namespace canopy
