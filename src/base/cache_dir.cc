#include "src/base/cache_dir.h"

#include <cstdlib>

#include "src/base/error.h"

namespace canopy {
namespace {

std::filesystem::path absolute_path_in(const char* variable) {
  const char* value = std::getenv(variable);
  const std::filesystem::path path = value ? value : "";
  return path.is_absolute() ? path : std::filesystem::path();
}

}  // namespace

std::filesystem::path cache_dir() {
  if (const auto cache = absolute_path_in("XDG_CACHE_HOME"); !cache.empty())
    return cache / "canopy";
  if (const auto home = absolute_path_in("HOME"); !home.empty()) return home / ".cache" / "canopy";
  throw Error("there is no place for measurements: set XDG_CACHE_HOME or HOME to a directory");
}

}  // namespace canopy
