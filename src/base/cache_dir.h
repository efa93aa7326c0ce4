#pragma once
#include <filesystem>
#include <string>

namespace canopy {

/// Returns the directory of this user's measurements: $XDG_CACHE_HOME/canopy, else ~/.cache/canopy.
/// It need not exist. Throws Error if neither variable names an absolute path.
/// Source: XDG Base Directory Specification, by which a relative path counts as unset.
std::filesystem::path cache_dir();
/// Returns a sentence for the user if XDG_CACHE_HOME is ignored, else nothing.
std::string ignored_cache_dir();

}  // namespace canopy
