#include "kernels/tensor.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/weight_view.h"
#include "src/base/error.h"

namespace canopy {
namespace {

TEST(View, RefusesShapesThatOverflowOrMakeNoSense) {
  std::byte byte{};
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW(TensorView(&byte, DType::kF32, {huge, huge}), Error);
  EXPECT_THROW(TensorView(&byte, DType::kF32, {2, -1}), Error);
  EXPECT_THROW(TensorView(&byte, DType::kF32, {}), Error);
  EXPECT_THROW(TensorView(&byte, DType::kF32, {1, 1, 1, 1, 1}), Error);
  EXPECT_THROW(TensorView(&byte, DType::kQ8_0, {2, 32}), Error);
}

TEST(View, RowsShareStorageAndStayInRange) {
  std::vector<std::byte> data(6 * 36);
  const TensorView whole(data.data(), DType::kBF16, {6, 18});
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

TEST(WeightView, RefusesWhatIsNoMatrixOfWeights) {
  std::byte byte{};
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW(WeightView(&byte, DType::kI32, 4, 32), Error);
  EXPECT_THROW(WeightView(&byte, DType::kF32, huge, huge), Error);
  EXPECT_THROW(WeightView(&byte, DType::kF32, -1, 2), Error);
  EXPECT_THROW(WeightView(&byte, DType::kF32, 2, 0), Error);
  EXPECT_THROW(WeightView(&byte, DType::kQ8_0, 2, 16), Error);
}

TEST(WeightView, ASliceOfRowsIsOneExtentAndStaysInRange) {
  std::vector<std::byte> data(6 * 36);
  const WeightView whole(data.data(), DType::kQ4_0, 6, 64);
  const WeightView part = whole.slice(2, 3);
  EXPECT_EQ(part.payload(), data.data() + 72);
  EXPECT_EQ(part.rows(), 3);
  EXPECT_EQ(part.columns(), 64);
  EXPECT_EQ(part.bytes(), 108u);
  EXPECT_EQ(whole.slice(6, 0).bytes(), 0u);
  EXPECT_FALSE(whole.slice(6, 0).empty());
  EXPECT_TRUE(WeightView().empty());
  EXPECT_THROW(whole.slice(5, 2), Error);
  EXPECT_THROW(whole.slice(-1, 2), Error);
  EXPECT_THROW(whole.slice(1, std::numeric_limits<std::int64_t>::max()), Error);
}

}  // namespace
}  // namespace canopy
