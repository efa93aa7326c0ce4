#pragma once
#include <ostream>

namespace canopy::cli {

/// Standard error for what a user may do without: notes, and what was chosen. It swallows all after
/// be_quiet(). Errors, warnings and answers go to std::cerr.
std::ostream& aside();
/// --quiet.
void be_quiet();
bool is_quiet();

}  // namespace canopy::cli
