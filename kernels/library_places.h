#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace canopy {

/// What says where a shared library may be, apart from the loader's own paths (which
/// LD_LIBRARY_PATH is one of): values of environment variables, "" where they are not set.
struct LibraryHints {
  std::string cuda_home, cuda_path;       // CUDA_HOME, CUDA_PATH: a toolkit
  std::string virtual_env, conda_prefix;  // VIRTUAL_ENV, CONDA_PREFIX: a Python
  std::string path, home;                 // PATH, for the Pythons on it, and HOME
  std::filesystem::path root = "/";       // of the file system
};
LibraryHints library_hints();

/// Folders that may hold a library of CUDA `major`, most likely first: toolkits named by the hints
/// or below /usr/local, then the wheels that pip installs for Python (nvidia/*/lib), which is where
/// PyTorch brings it. Only those that exist, each once.
std::vector<std::filesystem::path> cuda_library_places(const LibraryHints& hints, int major);

}  // namespace canopy
