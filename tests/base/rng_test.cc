#include "src/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace canopy {
namespace {

TEST(Philox, MatchesThePublishedTestVectors) {  // kat_vectors of Random123, philox4x32 10
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(StepRng, EveryPartOfTheKeyChangesTheDraw) {
  std::set<double> seen;
  for (const auto purpose :
       {StepRng::Purpose::kDraft, StepRng::Purpose::kAccept, StepRng::Purpose::kBonus})
    for (std::uint64_t seed : {0u, 1u})
      for (std::uint32_t sequence : {0u, 1u})
        for (std::uint64_t step : {0u, 1u})
          for (std::uint64_t index : {0u, 1u})
            seen.insert(StepRng{seed, sequence, step}.uniform(purpose, index));
  EXPECT_EQ(seen.size(), 48u);
}

TEST(StepRng, IsUniformInTheOpenUnitInterval) {
  const StepRng rng{7, 0, 3};
  double sum = 0, squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = rng.uniform(StepRng::Purpose::kAccept, static_cast<std::uint64_t>(i));
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
  }
  // Standard errors of the two means are below 0.001; five of them.
  EXPECT_NEAR(sum / kDraws, 1.0 / 2, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.005);
}

}  // namespace
}  // namespace canopy
