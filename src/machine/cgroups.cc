#include "src/machine/cgroups.h"

#include <algorithm>
#include <fstream>

namespace canopy {

namespace {

namespace fs = std::filesystem;

void add_upwards(int version, const fs::path& mount, const std::string& path,
                 std::vector<Cgroup>& out) {
  // In a container the path may be one of the host's, which is not mounted here: then the mount
  // itself is the group.
  fs::path group = fs::path(path).relative_path();
  if (!fs::exists(mount / group)) group.clear();
  while (true) {
    out.push_back({version, (fs::path("/") / group).string(), mount / group});
    if (group.empty()) break;
    group = group.parent_path();
  }
}

}  // namespace

std::vector<Cgroup> cgroups_of(const std::string& controller, const fs::path& root) {
  std::vector<Cgroup> found;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // id:controllers:path
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first, second - first + 1);  // ":cpu,memory:"
    std::replace(controllers.begin(), controllers.end(), ':', ',');
    const std::string path = line.substr(second + 1);
    if (controllers == ",,")
      add_upwards(2, fs::exists(mounts / "unified") ? mounts / "unified" : mounts, path, found);
    if (controllers.find("," + controller + ",") != std::string::npos)
      add_upwards(1, mounts / controller, path, found);
  }
  return found;
}

}  // namespace canopy
