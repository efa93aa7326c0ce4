#include "src/base/formats/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace canopy {
namespace {

TEST(Half, EveryHalfSurvivesARoundTrip) {
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

TEST(Half, RoundsToNearestTiesToEven) {
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

TEST(Half, AFiniteValueBeyondF16BecomesItsLargestAndOthersStayAsTheyAre) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  EXPECT_EQ(within_f16(std::nextafter(65504.0f, kInfinity)), 65504.0f);
  EXPECT_EQ(within_f16(-kLargest), -65504.0f);
  for (const float value : {0.0f, -1e-20f, 65504.0f, -65504.0f, kInfinity, -kInfinity})
    EXPECT_EQ(within_f16(value), value);
  EXPECT_TRUE(std::isnan(within_f16(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace canopy
