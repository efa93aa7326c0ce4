#pragma once
#include <utility>
#include <vector>

#include "src/speculation/growers/grower.h"
#include "tests/speculation/speculation.h"

namespace canopy::testing {

/// A grower's work on a draft.
struct Grown {
  GrownTree tree;
  int forwards = 0;
  std::vector<Text> run;  // paths of the nodes that were run, in their order
};

/// Plays the draft model: the rows of all that the grower asks for, at once.
inline Grown grow_on_tables(Grower& grower, const Model& draft) {
  Grown grown{GrownTree{TokenTree(0), {}}, 0, {{}}};
  std::size_t first = 0;
  while (first < grown.run.size()) {
    std::vector<std::vector<float>> rows;
    std::vector<DraftedRow> drafted;
    for (std::size_t i = first; i < grown.run.size(); ++i) {
      const std::vector<double> row = draft(grown.run[i]);
      rows.emplace_back(row.begin(), row.end());
    }
    for (const auto& row : rows) drafted.push_back({row, row});
    ++grown.forwards;
    first = grown.run.size();
    for (const DraftedNode& node : grower.take(drafted)) {
      Text path = grown.run.at(static_cast<std::size_t>(node.parent));
      path.push_back(node.token);
      grown.run.push_back(std::move(path));
    }
  }
  grown.tree = grower.finish();
  return grown;
}

}  // namespace canopy::testing
