#pragma once
#include <string>

#include "src/engine/plan/plan.h"

namespace canopy::cli {

/// "tree of 48 nodes in 8 levels", "chain of 6", "plain decoding".
std::string in_words(const TreeShape& shape);
/// A plan in a line: places, method, and what is predicted of one text and of a full house.
std::string in_words(const Plan& plan);

}  // namespace canopy::cli
