#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace canopy {

/// Each fallback taken: what was refused, the path taken, its cost, and how to get the fast one.
/// What the costs were is in docs/results/fallbacks.md.
using Notes = std::vector<std::string>;
/// Several engines of one run meet the same refusal: it is told once.
inline void add_note(Notes& notes, std::string note) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
}

}  // namespace canopy
