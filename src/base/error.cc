#include "src/base/error.h"

namespace canopy {

namespace {
/// "/build/x/offload/io/uring_engine.cc" -> "offload/io/uring_engine.cc": the room and the file are
/// enough.
std::string_view short_path(std::string_view path) {
  const auto last = path.rfind('/');
  if (last == std::string_view::npos || last == 0) return path;
  const auto before = path.rfind('/', last - 1);
  return before == std::string_view::npos ? path : path.substr(before + 1);
}
}  // namespace

Error::Error(std::string_view cause, const char* file, int line)
    : std::runtime_error(std::string(cause) + " (" + std::string(short_path(file)) + ":" +
                         std::to_string(line) + ")") {}

Error Error::with(std::string_view context) const {
  return Error(Whole{}, std::string(what()) + "\n  while " + std::string(context));
}

}  // namespace canopy
