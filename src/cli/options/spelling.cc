#include "src/cli/options/spelling.h"

#include <algorithm>

namespace canopy::cli {

namespace {

/// Restricted Damerau-Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 64;
  if (word.size() > kLongest || known.empty()) return "";
  const auto nearest = std::min_element(known.begin(), known.end(), [&](auto& one, auto& other) {
    return distance(word, one) < distance(word, other);
  });
  const std::size_t letters = word.size() - std::min(word.find_first_not_of('-'), word.size());
  const auto whole =
      std::find_if(known.begin(), known.end(), [&](auto& one) { return one.starts_with(word); });
  if (distance(word, *nearest) <= std::max<std::size_t>(1, letters / 3))
    return "; did you mean " + *nearest + "?";
  if (letters > 2 && whole != known.end()) return "; did you mean " + *whole + "?";
  return "";
}

}  // namespace canopy::cli
