#include "planner/chain_cost.h"

#include <cmath>

#include "src/base/error.h"

namespace canopy {

namespace {

void check(double alpha, int g, double cost) {
  require(alpha >= 0 && alpha <= 1, "chain: the acceptance rate must lie between 0 and 1");
  require(g >= 0, "chain: a length is not negative");
  require(cost >= 0, "chain: a cost is not negative");
}

}  // namespace

double chain_tokens(double alpha, int g) {
  check(alpha, g, 0);
  if (alpha == 1) return g + 1;
  return (1 - std::pow(alpha, g + 1)) / (1 - alpha);
}

double chain_speedup(double alpha, int g, double c) {
  check(alpha, g, c);
  return chain_tokens(alpha, g) / (g * c + 1);
}

double chain_operations(double alpha, int g, double c_ops) {
  check(alpha, g, c_ops);
  return (g * c_ops + g + 1) / chain_tokens(alpha, g);
}

int best_chain_length(double alpha, double c, int most) {
  check(alpha, most, c);
  int best = 0;
  for (int g = 1; g <= most; ++g)
    if (chain_speedup(alpha, g, c) > chain_speedup(alpha, best, c)) best = g;
  return best;
}

double chain_speedup_bound(double alpha, double c) {
  check(alpha, 0, c);
  require(alpha < 1, "chain: of an acceptance rate of 1 there is no bound");
  return 1 / (1 - alpha + c * alpha);
}

}  // namespace canopy
