#include "planner/curve.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "src/base/error.h"

namespace canopy {
namespace {

double at(const Curve& curve, double x) { return curve.at(x).count(); }

TEST(Curve, IsLinearBetweenItsPointsLevelBeforeThemAndGoesOnBehindThem) {
  const Curve curve =
      Curve::fit(std::vector<Sample>{{8, Seconds(5)}, {2, Seconds(1)}, {4, Seconds(2)}});
  EXPECT_DOUBLE_EQ(at(curve, 0), 1);
  EXPECT_DOUBLE_EQ(at(curve, 2), 1);
  EXPECT_DOUBLE_EQ(at(curve, 3), 1.5);
  EXPECT_DOUBLE_EQ(at(curve, 6), 3.5);
  EXPECT_DOUBLE_EQ(at(curve, 8), 5);
  EXPECT_DOUBLE_EQ(at(curve, 12), 8);
}

TEST(Curve, OnePointIsALevelLine) {
  const Curve curve = Curve::fit(std::vector<Sample>{{4, Seconds(3)}});
  EXPECT_DOUBLE_EQ(at(curve, 1), 3);
  EXPECT_DOUBLE_EQ(at(curve, 9), 3);
}

TEST(Curve, TakesTheMedianOfRepeatedMeasurements) {
  const Curve curve =
      Curve::fit(std::vector<Sample>{{1, Seconds(1)}, {1, Seconds(90)}, {1, Seconds(2)}});
  EXPECT_DOUBLE_EQ(at(curve, 1), 2);
}

TEST(Curve, NeverFalls) {
  const Curve curve = Curve::fit(
      std::vector<Sample>{{1, Seconds(2)}, {2, Seconds(6)}, {3, Seconds(4)}, {4, Seconds(7)}});
  EXPECT_DOUBLE_EQ(at(curve, 2), 5);
  EXPECT_DOUBLE_EQ(at(curve, 3), 5);
  for (double x = 0; x < 6; x += 0.25) EXPECT_LE(at(curve, x), at(curve, x + 0.25));
}

TEST(Curve, RefusesWhatIsNoMeasurement) {
  EXPECT_THROW(Curve::fit({}), Error);
  EXPECT_THROW(Curve::fit(std::vector<Sample>{{-1, Seconds(1)}}), Error);
  EXPECT_THROW(Curve::fit(std::vector<Sample>{{1, Seconds(-1)}}), Error);
  EXPECT_THROW(
      Curve::fit(std::vector<Sample>{{1, Seconds(std::numeric_limits<double>::quiet_NaN())}}),
      Error);
}

}  // namespace
}  // namespace canopy
