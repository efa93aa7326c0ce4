#include "src/checkpoint/families/alibi.h"

#include <cmath>

namespace canopy {

std::vector<float> alibi_slopes(int heads) {
  int power = 1;
  while (2 * power <= heads) power *= 2;
  const auto slope = [&](int eighths) {
    return static_cast<float>(std::exp2(-4.0 * eighths / power));
  };
  std::vector<float> slopes;
  for (int i = 1; i <= power; ++i) slopes.push_back(slope(2 * i));
  for (int i = 1; i < 2 * (heads - power); i += 2) slopes.push_back(slope(i));
  return slopes;
}

}  // namespace canopy
