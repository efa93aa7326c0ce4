#pragma once
#include <iosfwd>
#include <string>

namespace canopy::cli {

/// Prints what `canopy --version` says: the version, the commit, and what was built how.
void print_version(std::ostream& out);
/// Its first line: "canopy 0.1.0 (commit 1a2b3c4d5e6f)".
std::string version_line();

}  // namespace canopy::cli
