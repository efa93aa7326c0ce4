#include "src/measure/rouge.h"

#include <algorithm>
#include <map>

namespace canopy {
namespace {

using Words = std::vector<std::string>;

double f1(std::size_t common, std::size_t text, std::size_t reference) {
  return common == 0 ? 0 : 2 * static_cast<double>(common) / static_cast<double>(text + reference);
}

std::map<std::string, std::size_t> count_runs(const Words& words, std::size_t length) {
  std::map<std::string, std::size_t> counts;
  for (std::size_t i = 0; i + length <= words.size(); ++i) {
    std::string run;
    for (std::size_t k = 0; k < length; ++k) run.append(words[i + k]).append(" ");
    ++counts[run];
  }
  return counts;
}

/// A run counts as often as both have it.
double f1_of_runs(const Words& text, const Words& reference, std::size_t length) {
  if (text.size() < length || reference.size() < length) return 0;
  const auto wanted = count_runs(reference, length);
  std::size_t common = 0;
  for (const auto& [run, times] : count_runs(text, length))
    if (const auto found = wanted.find(run); found != wanted.end())
      common += std::min(times, found->second);
  return f1(common, text.size() - length + 1, reference.size() - length + 1);
}

std::size_t longest_common_subsequence(const Words& a, const Words& b) {
  std::vector<std::size_t> longest(b.size() + 1);  // of a's words so far and the first j of b
  for (const std::string& word : a) {
    std::size_t before = 0;  // without this word, of one less of b
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t without = longest[j + 1];
      longest[j + 1] = word == b[j] ? before + 1 : std::max(without, longest[j]);
      before = without;
    }
  }
  return longest.back();
}

}  // namespace

std::vector<std::string> rouge_words(std::string_view text) {
  Words words;
  bool in_word = false;
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool counts = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (counts && !in_word) words.emplace_back();
    if (counts) words.back() += upper ? static_cast<char>(c - 'A' + 'a') : c;
    in_word = counts;
  }
  return words;
}

Rouge rouge(std::string_view text, std::string_view reference) {
  const Words words = rouge_words(text), wanted = rouge_words(reference);
  return {.one = f1_of_runs(words, wanted, 1),
          .two = f1_of_runs(words, wanted, 2),
          .l = f1(longest_common_subsequence(words, wanted), words.size(), wanted.size())};
}

}  // namespace canopy
