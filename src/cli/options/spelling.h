#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace canopy::cli {

/// "; did you mean generate?", naming that of `known` which is nearest to `word`: at most a third
/// of its letters (one, in a short word) left out, put in, changed, or swapped with their
/// neighbour. Else the one that begins with `word`. Empty if there is none.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

}  // namespace canopy::cli
