#pragma once
#include <iosfwd>

namespace canopy::cli {

/// What `canopy --version` says: the version, the commit, and what was built how.
void print_version(std::ostream& out);

}  // namespace canopy::cli
