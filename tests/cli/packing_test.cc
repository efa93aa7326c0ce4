#include "src/cli/options/model/packing.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace canopy::cli {
namespace {

constexpr DType kPlain = DType::kBF16, kWindow = DType::kPackedBF16, kLevels = DType::kLevelsBF16;

DType pays(DType now, std::optional<double> plain, std::optional<double> window,
           std::optional<double> levels) {
  const std::vector<FormSeconds> forms{{{kPlain, 16, Seconds(1)}, plain},
                                       {{kWindow, 11.2, Seconds(2)}, window},
                                       {{kLevels, 10.8, Seconds(3)}, levels}};
  return best_form(forms, now).cost.dtype;
}

TEST(Packing, AFormPaysWhereItIsFasterByMoreThanPredictionsMayBeOff) {
  EXPECT_EQ(pays(kPlain, 1.0, .96, .97), kPlain);
  EXPECT_EQ(pays(kPlain, 1.0, .94, .93), kLevels);
  EXPECT_EQ(pays(kWindow, 1.0, .94, .90), kWindow);
  EXPECT_EQ(pays(kWindow, .80, 1.0, .99), kPlain);
  EXPECT_EQ(pays(kWindow, .96, 1.0, 1.2), kWindow);
  EXPECT_EQ(pays(kWindow, std::nullopt, 1.0, std::nullopt), kWindow);
  EXPECT_EQ(pays(kLevels, std::nullopt, .90, 1.0), kWindow);
}

}  // namespace
}  // namespace canopy::cli
