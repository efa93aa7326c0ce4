#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace canopy {

/// The words that ROUGE counts: runs of a to z and 0 to 9, after lower-casing. Every other byte
/// lies between words, as in the usual implementation (Google's rouge_score) without stemming.
std::vector<std::string> rouge_words(std::string_view text);

/// F1 of a text against a reference, each from 0 to 1; 0 where either has no such words.
struct Rouge {
  double one = 0;  // words
  double two = 0;  // pairs of neighbouring words
  double l = 0;    // the longest common subsequence of words
};
/// Source: Lin, ROUGE: A Package for Automatic Evaluation of Summaries (2004), sections 2 and 3.
Rouge rouge(std::string_view text, std::string_view reference);

}  // namespace canopy
