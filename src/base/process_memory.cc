#include "src/base/process_memory.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "src/base/error.h"

namespace canopy {

namespace {

namespace fs = std::filesystem;

/// "key value" lines, a colon behind the key and a unit behind the value left out.
std::map<std::string, std::uint64_t> read_fields(const fs::path& path) {
  std::map<std::string, std::uint64_t> fields;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t value = 0;
    if (!(words >> key >> value)) continue;
    if (key.back() == ':') key.pop_back();
    fields[key] = value;
  }
  return fields;
}

std::uint64_t kibibytes(const fs::path& path, const std::string& field) {
  const auto fields = read_fields(path);
  const auto found = fields.find(field);
  if (found == fields.end()) throw Error(path.string() + " has no " + field + ": mount /proc");
  return found->second * 1024;
}

/// Empty where the file is missing or says "max".
std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// What the two versions call the same things.
struct Hierarchy {
  fs::path mount;
  const char *limit, *unlimited, *used;
  std::vector<std::string> reclaimable;  // of memory.stat
};

/// The groups from `path` up to the mount that limit less than the machine has.
void add_limits(const Hierarchy& hierarchy, const std::string& path, std::uint64_t total,
                std::vector<CgroupMemory>& out) {
  // In a container the path may be one of the host's, which is not mounted here: then the mount
  // itself is the group.
  fs::path group = fs::path(path).relative_path();
  if (!fs::exists(hierarchy.mount / group / hierarchy.used)) group.clear();
  while (true) {
    const fs::path directory = hierarchy.mount / group;
    const auto limit = read_number(directory / hierarchy.limit);
    const auto used = read_number(directory / hierarchy.used);
    if (limit && used && *limit < total) {
      const auto fields = read_fields(directory / "memory.stat");
      std::uint64_t cache = 0;
      for (const std::string& key : hierarchy.reclaimable)
        if (const auto found = fields.find(key); found != fields.end()) cache += found->second;
      out.push_back({(fs::path("/") / group).string(),
                     std::string("echo ") + hierarchy.unlimited + " > " +
                         (directory / hierarchy.limit).string(),
                     *limit, *used - std::min(cache, *used)});
    }
    if (group.empty()) break;
    group = group.parent_path();
  }
}

}  // namespace

std::uint64_t resident_memory() { return kibibytes("/proc/self/status", "VmRSS"); }
std::uint64_t peak_resident_memory() { return kibibytes("/proc/self/status", "VmHWM"); }

std::uint64_t SystemMemory::free() const {
  std::uint64_t least = std::min(available, promised);
  for (const CgroupMemory& group : cgroups)
    least = std::min(least, group.limit - std::min(group.limit, group.used));
  return least;
}

SystemMemory system_memory(const fs::path& root) {
  SystemMemory memory;
  memory.total = kibibytes(root / "proc/meminfo", "MemTotal");
  memory.available = kibibytes(root / "proc/meminfo", "MemAvailable");
  if (read_number(root / "proc/sys/vm/overcommit_memory") == 2) {
    const std::uint64_t limit = kibibytes(root / "proc/meminfo", "CommitLimit");
    memory.promised = limit - std::min(limit, kibibytes(root / "proc/meminfo", "Committed_AS"));
  }
  const fs::path mounts = root / "sys/fs/cgroup";
  const Hierarchy one{mounts / "memory",
                      "memory.limit_in_bytes",
                      "-1",
                      "memory.usage_in_bytes",
                      {"total_inactive_file", "total_active_file"}};
  const Hierarchy two{fs::exists(mounts / "unified") ? mounts / "unified" : mounts,
                      "memory.max",
                      "max",
                      "memory.current",
                      {"inactive_file", "active_file"}};
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // id:controllers:path
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first, second - first + 1);  // ":cpu,memory:"
    std::replace(controllers.begin(), controllers.end(), ':', ',');
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") add_limits(two, path, memory.total, memory.cgroups);
    if (controllers.find(",memory,") != std::string::npos)
      add_limits(one, path, memory.total, memory.cgroups);
  }
  return memory;
}

void volunteer_for_oom_kill() { std::ofstream("/proc/self/oom_score_adj") << 500; }

}  // namespace canopy
