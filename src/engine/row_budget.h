#pragma once
#include <algorithm>

namespace canopy {

/// Shares of a sweep's rows: of trees, and of a prompt that is read meanwhile.
struct RowShare {
  int tree_nodes = 0;  // of each tree
  int prompt_rows = 0;
};

/// `behind_link`: rows whose arithmetic takes no longer than the link. While somebody waits a sweep
/// may take a quarter more of them. The prompt has what the trees leave, and half at least: a
/// prompt then takes about twice the sweeps that its arithmetic fills, and trees shrink by half at
/// most. `trees` of `nodes` each, at least one.
inline RowShare share_rows(int behind_link, int trees, int nodes, int prompt) {
  const int rows = std::max(2 * trees, behind_link + behind_link / 4);
  const int for_prompt = std::clamp(rows - trees * nodes, rows / 2, rows);
  const int taken = std::min(prompt, for_prompt);
  return {std::clamp((rows - taken) / trees, 1, nodes), taken};
}

}  // namespace canopy
