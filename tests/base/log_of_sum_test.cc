#include "src/base/log_of_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace canopy {
namespace {

TEST(LogOfSum, IsThatOfTheExponentials) {
  EXPECT_NEAR(log_of_sum(std::array{1.0f, 2.0f, -3.0f}),
              std::log(std::exp(1) + std::exp(2) + std::exp(-3)), 1e-15);
  EXPECT_EQ(log_of_sum(std::array{5.0f}), 5.0);
  EXPECT_NEAR(log_of_sum(std::array{3e38f, 3e38f}), 3e38, 1e31);  // exp() of it is infinite
}

TEST(LogOfSum, HasTheSameBitsWhereverItsNumbersAreCut) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 8);
    std::vector<float> x(200);
    for (float& one : x) one = normal(random);
    LogOfSum pieces;
    for (std::size_t first = 0; first < x.size();) {
      const std::size_t count = std::min<std::size_t>(random() % 50, x.size() - first);
      pieces.add(std::span(x).subspan(first, count));
      first += count;
    }
    EXPECT_EQ(pieces.value(), log_of_sum(x));
  }
}

TEST(LogOfSum, IsNoNumberWhereOneIsNotFinite) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinite, -kInfinite, std::numeric_limits<float>::quiet_NaN()})
    EXPECT_TRUE(std::isnan(log_of_sum(std::array{1.0f, bad}))) << bad;
}

}  // namespace
}  // namespace canopy
