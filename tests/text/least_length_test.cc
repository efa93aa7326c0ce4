#include "src/text/least_length.h"

#include <gtest/gtest.h>

namespace canopy {
namespace {

using Bits = std::vector<std::uint32_t>;

struct Allowed {
  bool reached = false;
  Bits bits;
  bool has(TokenId token) const {
    return (bits[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }
};

Allowed allowed(TokenConstraint& constraint, const std::vector<TokenId>& path) {
  Allowed out{false, Bits(3, 0xAAAAAAAA)};
  out.reached = constraint.allow(path, out.bits);
  return out;
}

TEST(LeastLength, KeepsEndsAwayUntilThereAreSoManyTokens) {
  LeastLength least(3, {2, 64}, 70);
  for (int length = 0; length < 6; ++length) {
    const Allowed here = allowed(least, {});
    EXPECT_TRUE(here.reached);
    for (TokenId token = 0; token < 96; ++token) {
      const bool ends = token == 2 || token == 64;
      EXPECT_EQ(here.has(token), token < 70 && (!ends || length >= 3)) << length << " " << token;
    }
    least.accept(5);
  }
}

TEST(LeastLength, CountsTheTokensOfAPath) {
  LeastLength least(3, {2}, 70);
  least.accept(5);
  EXPECT_FALSE(allowed(least, {6}).has(2));
  EXPECT_TRUE(allowed(least, {6, 7}).has(2));
  EXPECT_TRUE(allowed(least, {6, 7, 2}).reached);
  for (const std::vector<TokenId>& path : {std::vector<TokenId>{2}, {6, 2}, {2, 6, 7}}) {
    const Allowed none = allowed(least, path);
    EXPECT_FALSE(none.reached);
    EXPECT_EQ(none.bits, Bits(3, 0));
  }
}

TEST(LeastLength, ACopyStandsAtTheSamePlaceAndGoesItsOwnWay) {
  LeastLength least(2, {2}, 64);
  least.accept(5);
  const auto copy = least.clone();
  copy->accept(6);
  EXPECT_TRUE(allowed(*copy, {}).has(2));
  EXPECT_FALSE(allowed(least, {}).has(2));
}

}  // namespace
}  // namespace canopy
