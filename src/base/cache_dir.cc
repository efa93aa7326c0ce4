#include "src/base/cache_dir.h"

#include <cstdlib>

#include "src/base/error.h"
#include "src/base/utf8.h"

namespace canopy {
namespace {

std::filesystem::path path_in(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}
std::filesystem::path absolute_path_in(const char* variable) {
  const std::filesystem::path path = path_in(variable);
  return path.is_absolute() ? path : std::filesystem::path();
}

}  // namespace

std::filesystem::path cache_dir() {
  if (const auto cache = absolute_path_in("XDG_CACHE_HOME"); !cache.empty())
    return cache / "canopy";
  if (const auto home = absolute_path_in("HOME"); !home.empty()) return home / ".cache" / "canopy";
  throw Error("there is no place for measurements: set XDG_CACHE_HOME or HOME to a directory");
}

std::string ignored_cache_dir() {
  const std::filesystem::path cache = path_in("XDG_CACHE_HOME");
  if (cache.empty() || cache.is_absolute()) return "";
  return "XDG_CACHE_HOME is " + in_quotes(cache.string()) +
         ", not an absolute path, and is ignored";
}

}  // namespace canopy
