#include "src/convert/pack/codec_costs.h"

#include <gtest/gtest.h>

namespace canopy {
namespace {

constexpr auto kCodecs = as_data_of_packed(PackedBf16Formats());

TEST(CodecCosts, HaveEachFormOfBf16AndItsBits) {
  const auto device = make_device({.threads = 1});
  const std::vector<CodecCost> costs = measure_codecs(*device, std::size_t{1} << 20, DType::kBF16);
  ASSERT_EQ(costs.size(), 1 + std::size(kCodecs));
  EXPECT_EQ(costs[0].dtype, DType::kBF16);
  EXPECT_EQ(costs[0].bits, 16);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    EXPECT_GT(costs[i].per_weight.count(), 0);
    EXPECT_EQ(costs[i].dtype, i == 0 ? DType::kBF16 : kCodecs[i - 1].dtype);
  }
  EXPECT_NEAR(costs[1].bits, 11.25, 0.05);  // as tests/convert/pack_row_test.cc has them
  EXPECT_NEAR(costs[2].bits, 10.8, 0.05);
}

TEST(CodecCosts, HaveEachFormOfFp8AndItsBits) {
  const auto device = make_device({.threads = 1});
  for (const DType plain : {DType::kE4M3Blocks, DType::kE4M3Rows}) {
    const std::vector<CodecCost> costs = measure_codecs(*device, std::size_t{1} << 20, plain);
    ASSERT_EQ(costs.size(), 2u);
    EXPECT_EQ(costs[0].dtype, plain);
    EXPECT_EQ(costs[1].dtype, find_codec("e4m3-levels-512", plain)->dtype);
    EXPECT_NEAR(costs[0].bits, 8, 0.01);
    EXPECT_NEAR(costs[1].bits, 6.82, 0.05);
    for (const CodecCost& cost : costs) EXPECT_GT(cost.per_weight.count(), 0);
  }
}

TEST(CodecCosts, TakeAsLittleMemoryAsIsAskedFor) {
  const auto device = make_device({.threads = 1});
  EXPECT_EQ(measure_codecs(*device, 1, DType::kBF16).size(), 1 + std::size(kCodecs));
}

}  // namespace
}  // namespace canopy
