#include "planner/chain_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/base/error.h"

namespace canopy {
namespace {

TEST(ChainCost, GivesThePapersTableToItsLastDigit) {  // arXiv:2211.17192, Table 1, c = c_ops = 0
  struct Row {
    double alpha;
    int g;
    double operations, speed;
  };
  for (const Row& row : {Row{.6, 2, 1.53, 1.96}, Row{.7, 3, 1.58, 2.53}, Row{.8, 2, 1.23, 2.44},
                         Row{.8, 5, 1.63, 3.69}, Row{.9, 2, 1.11, 2.71}, Row{.9, 10, 1.60, 6.86}}) {
    EXPECT_LT(std::abs(chain_operations(row.alpha, row.g, 0) - row.operations), 0.005 + 1e-12);
    EXPECT_LT(std::abs(chain_speedup(row.alpha, row.g, 0) - row.speed), 0.005 + 1e-12);
  }
}

TEST(ChainCost, GivesThePapersSpeedupsOfSmallDrafts) {  // figures at c = .015 and g = 8, 3.5
  const auto near = [](double alpha, double speed) {
    EXPECT_LT(std::abs(chain_speedup(alpha, 8, 0.015) - speed), 0.05) << alpha;
  };
  near(.75, 3.3);
  near(.80, 3.9);
  near(.87, 4.9);
}

TEST(ChainCost, TokensAreThoseOfAPlayedChain) {
  std::mt19937 random(1);
  constexpr int kSteps = 200'000;
  for (const double alpha : {0.0, 0.3, 0.8, 1.0})
    for (const int g : {0, 1, 4, 9}) {
      std::bernoulli_distribution accepted(alpha);
      double tokens = 0, squares = 0;
      for (int step = 0; step < kSteps; ++step) {
        int kept = 0;
        while (kept < g && accepted(random)) ++kept;
        tokens += kept + 1;
        squares += (kept + 1.0) * (kept + 1.0);
      }
      const double mean = tokens / kSteps;
      const double error = std::sqrt((squares / kSteps - mean * mean) / kSteps);
      EXPECT_LE(std::abs(mean - chain_tokens(alpha, g)), 5 * error + 1e-9) << alpha << " " << g;
    }
}

TEST(ChainCost, PaysExactlyWhereTheDraftIsAcceptedMoreOftenThanItCosts) {
  for (double alpha = 0; alpha <= 0.99; alpha += 0.03)
    for (double c = 0.01; c < 1; c += 0.07) {
      if (std::abs(alpha - c) < 1e-9) continue;  // equal but for rounding
      const int g = best_chain_length(alpha, c, 100);
      EXPECT_EQ(g > 0, alpha > c) << alpha << " " << c;
      if (g > 0) {
        EXPECT_GE(chain_speedup(alpha, g, c), (1 + alpha) / (1 + c) - 1e-12);
      }
    }
}

TEST(ChainCost, NoLengthIsFasterThanAnOracleThatStopsInTime) {
  // The oracle, played: it drafts what is accepted and no more.
  std::mt19937 random(2);
  for (const double alpha : {0.3, 0.7, 0.95})
    for (const double c : {0.015, 0.2}) {
      double tokens = 0, seconds = 0;
      std::bernoulli_distribution accepted(alpha);
      for (int step = 0; step < 200'000; ++step) {
        int kept = 0;
        while (accepted(random)) ++kept;
        tokens += kept + 1;
        seconds += 1 + c * kept;
      }
      const double bound = chain_speedup_bound(alpha, c);
      EXPECT_NEAR(tokens / seconds / bound, 1, 0.02);
      for (int g = 1; g < 100; ++g) EXPECT_LE(chain_speedup(alpha, g, c), bound);
    }
  double most = 0;  // the paper: up to about 60 % over a fixed length
  for (double alpha = 0.05; alpha < 0.995; alpha += 0.01)
    most = std::max(most, chain_speedup_bound(alpha, 0.015) /
                              chain_speedup(alpha, best_chain_length(alpha, 0.015, 500), 0.015));
  EXPECT_GT(most, 1.5);
  EXPECT_LT(most, 1.65);
}

TEST(ChainCost, RefusesWhatIsNoRateLengthOrCost) {
  EXPECT_THROW(chain_tokens(1.01, 3), Error);
  EXPECT_THROW(chain_tokens(-0.01, 3), Error);
  EXPECT_THROW(chain_tokens(NAN, 3), Error);
  EXPECT_THROW(chain_speedup(0.5, -1, 0), Error);
  EXPECT_THROW(chain_operations(0.5, 1, -1), Error);
  EXPECT_THROW(chain_speedup_bound(1, 0.1), Error);
}

}  // namespace
}  // namespace canopy
