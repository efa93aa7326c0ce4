#pragma once
#include <optional>
#include <string_view>

#include "planner/tree_shape.h"

namespace canopy {

/// A shape as a user writes it: "8x4", eight independent sequences of four tokens; "4,2,1", the
/// children that each node of a level has; "2-ary:64", the binary tree of 64 nodes, the root's
/// included, filled level by level. Nothing for other text, which may name a file.
/// Throws Error if there is no such tree.
std::optional<TreeShape> parse_shape(std::string_view text);

/// A shape from a JSON array of parents, breadth-first, the root's being -1, or from an object that
/// has one as "parents" (other members are for its readers). Throws Error naming the entry that is
/// wrong.
TreeShape shape_from_json(std::string_view json);

}  // namespace canopy
