#include "kernels/library_places.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace canopy {

namespace fs = std::filesystem;

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Lists a folder, by name; nothing where it cannot be read.
std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored))
    found.push_back(at->path());
  std::sort(found.begin(), found.end());
  return found;
}

bool named(const fs::path& entry, const std::string& begin) {
  return entry.filename().string().starts_with(begin);
}

class Places {
 public:
  void toolkit(const fs::path& home) {
    if (home.empty()) return;
    add(home / "lib64");
    add(home / "targets" / "x86_64-linux" / "lib");
    add(home / "lib");
  }
  /// Adds the places of the Python that is installed below `prefix`.
  void python(const fs::path& prefix) {
    if (prefix.empty()) return;
    for (const char* lib : {"lib", "lib64"})
      for (const fs::path& version : entries(prefix / lib))
        if (named(version, "python3"))
          for (const char* packages : {"site-packages", "dist-packages"})
            for (const fs::path& wheel : entries(version / packages / "nvidia")) add(wheel / "lib");
  }
  std::vector<fs::path> all;

 private:
  void add(const fs::path& folder) {
    std::error_code ignored;
    if (fs::is_directory(folder, ignored) && std::find(all.begin(), all.end(), folder) == all.end())
      all.push_back(folder);
  }
};

}  // namespace

LibraryHints library_hints() {
  return {variable("CUDA_HOME"),    variable("CUDA_PATH"), variable("VIRTUAL_ENV"),
          variable("CONDA_PREFIX"), variable("PATH"),      variable("HOME")};
}

std::vector<fs::path> cuda_library_places(const LibraryHints& hints, int major) {
  Places places;
  places.toolkit(hints.cuda_home);
  places.toolkit(hints.cuda_path);
  const fs::path local = hints.root / "usr" / "local";
  places.toolkit(local / "cuda");
  for (const fs::path& entry : entries(local))
    if (named(entry, "cuda-" + std::to_string(major))) places.toolkit(entry);
  places.python(hints.virtual_env);
  places.python(hints.conda_prefix);
  std::istringstream path(hints.path);
  for (std::string folder; std::getline(path, folder, ':');) {
    std::error_code ignored;  // a link into an environment is followed to the Python itself
    for (const char* name : {"python3", "python"})
      if (const fs::path program = fs::path(folder) / name; fs::exists(program, ignored)) {
        places.python(fs::path(folder).parent_path());
        places.python(fs::canonical(program, ignored).parent_path().parent_path());
      }
  }
  if (!hints.home.empty()) places.python(fs::path(hints.home) / ".local");
  places.python(local);
  places.python(hints.root / "usr");
  return places.all;
}

CudaLibrary load_cuda_library(const std::string& name, const std::string& needs, int built_for,
                              const LibraryHints& hints) {
  std::vector<int> majors{13, 12};
  std::stable_partition(majors.begin(), majors.end(), [&](int m) { return m == built_for; });
  CudaLibrary library;
  const auto load = [&](const std::string& file) {
    library.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle == nullptr) library.tried += "\n  " + std::string(dlerror());
    return library.handle != nullptr;
  };
  for (const int major : majors) {
    const auto file = [&](const std::string& of) {
      return "lib" + of + ".so." + std::to_string(major);
    };
    if (load(file(name))) return library;
    for (const fs::path& folder : cuda_library_places(hints, major)) {
      // The loader looks for what it needs in its own paths alone, or has it already.
      dlopen((folder / file(needs)).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (load(folder / file(name))) return library;
    }
  }
  return library;
}

}  // namespace canopy
