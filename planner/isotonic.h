#pragma once
#include <span>
#include <vector>

namespace canopy {

/// The nearest non-increasing sequence in least squares: pools adjacent violators.
std::vector<double> non_increasing(std::span<const double> values);
/// The nearest non-decreasing one.
std::vector<double> non_decreasing(std::span<const double> values);

}  // namespace canopy
