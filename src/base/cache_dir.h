#pragma once
#include <filesystem>
#include <string>

namespace canopy {

/// Where this user's measurements are kept: $XDG_CACHE_HOME/canopy, else ~/.cache/canopy. Need not
/// exist. Throws Error if neither variable names an absolute path.
/// Source: XDG Base Directory Specification, by which a relative path counts as unset.
std::filesystem::path cache_dir();
/// What of these variables is ignored, for the user to know; empty if nothing is.
std::string ignored_cache_dir();

}  // namespace canopy
