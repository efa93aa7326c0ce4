#include "src/base/log_of_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace canopy {
namespace {

TEST(LogOfSum, IsThatOfTheExponentials) {
  EXPECT_NEAR(log_of_sum(std::array{1.0f, 2.0f, -3.0f}),
              std::log(std::exp(1) + std::exp(2) + std::exp(-3)), 1e-15);
  EXPECT_EQ(log_of_sum(std::array{5.0f}), 5.0);
  EXPECT_NEAR(log_of_sum(std::array{3e38f, 3e38f}), 3e38, 1e31);  // exp() of it is infinite
}

TEST(LogOfSum, IsNoNumberWhereOneIsNotFinite) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinite, -kInfinite, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_TRUE(std::isnan(log_of_sum(std::array{1.0f, bad}))) << bad;
}

}  // namespace
}  // namespace canopy
