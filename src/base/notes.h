#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace canopy {

/// Each fallback taken: what was refused, the path taken, its cost, and how to get the fast one.
/// The costs were measured: docs/results/fallbacks.md.
using Notes = std::vector<std::string>;
/// Adds a note once: several engines of one run may meet the same refusal.
inline void add_note(Notes& notes, std::string note) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
}

}  // namespace canopy
