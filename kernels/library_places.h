#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace canopy {

/// Hints of where a shared library may be, apart from the loader's own paths (which LD_LIBRARY_PATH
/// is one of): values of environment variables, "" where they are not set.
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

/// A library of CUDA as the loader gave it, for as long as the program runs; null: none could be
/// loaded, and `tried` has a line for each attempt.
struct CudaLibrary {
  void* handle = nullptr;
  std::string tried;
};
/// Loads libNAME.so.MAJOR, of CUDA `built_for` if it is there, else of another that has the same
/// functions (13 and 12), from the loader's own paths or those above. `needs`: a library that it
/// needs from the same folder, named alike.
CudaLibrary load_cuda_library(const std::string& name, const std::string& needs, int built_for,
                              const LibraryHints& hints);

}  // namespace canopy
