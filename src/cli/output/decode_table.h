#pragma once
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace canopy::cli {

/// Prints the rows of `canopy bench decode`, as its JSON has them: a table, what each inexact rule
/// changes, and tables of chains and of graphs where there are any.
void print_decode(const std::vector<nlohmann::json>& rows);

}  // namespace canopy::cli
