#include "src/machine/mount.h"

#include <fstream>
#include <sstream>

namespace canopy {

namespace {

/// "/my\040models" -> "/my models": how the kernel writes what would break its table.
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Mount mount_of(const std::filesystem::path& file) {
  std::error_code none;
  const std::string path = std::filesystem::canonical(file, none);
  Mount best;
  if (none) return best;
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    Mount mount;
    words >> mount.device >> mount.point >> mount.type >> mount.options;
    mount.point = unescaped(mount.point);
    const bool inside =
        mount.point == "/" || path == mount.point || path.starts_with(mount.point + "/");
    // A later mount hides an earlier one on the same point.
    if (inside && mount.point.size() >= best.point.size()) best = mount;
  }
  return best;
}

}  // namespace canopy
