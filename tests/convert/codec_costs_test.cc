#include "src/convert/pack/codec_costs.h"

#include <gtest/gtest.h>

namespace canopy {
namespace {

constexpr auto kCodecs = as_data_of_packed(PackedBf16Formats());

TEST(CodecCosts, HaveEachFormOfBf16AndItsBits) {
  const auto device = make_device({.threads = 1});
  const std::vector<CodecCost> costs = measure_codecs(*device, std::size_t{1} << 20);
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

TEST(CodecCosts, TakeAsLittleMemoryAsIsAskedFor) {
  const auto device = make_device({.threads = 1});
  EXPECT_EQ(measure_codecs(*device, 1).size(), 1 + std::size(kCodecs));
}

}  // namespace
}  // namespace canopy
