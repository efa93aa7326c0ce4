#pragma once
#include <vector>

namespace canopy {

/// Returns the factor of a key's distance in each head: with m the largest power of two up to
/// their number, 2^(-8 i / m), i = 1..m; the others are every second one of twice as many. Source:
/// arXiv:2108.12409.
std::vector<float> alibi_slopes(int heads);

}  // namespace canopy
