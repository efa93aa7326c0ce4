#include "src/machine/process_memory.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "src/base/error.h"
#include "src/machine/cgroups.h"

namespace canopy {

namespace {

namespace fs = std::filesystem;

/// Reads "key value" lines, leaving out a colon after the key and a unit after the value.
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

/// Names that the two versions of cgroups give to the same things.
struct Names {
  const char *limit, *unlimited, *used;
  std::vector<std::string> reclaimable;  // of memory.stat
};

/// Nothing where the group limits no less than the machine does.
std::optional<CgroupMemory> limit_of(const Cgroup& group, const Names& names, std::uint64_t total) {
  const auto limit = read_number(group.directory / names.limit);
  const auto used = read_number(group.directory / names.used);
  if (!limit || !used || *limit >= total) return std::nullopt;
  const auto fields = read_fields(group.directory / "memory.stat");
  std::uint64_t cache = 0;
  for (const std::string& key : names.reclaimable)
    if (const auto found = fields.find(key); found != fields.end()) cache += found->second;
  return CgroupMemory{
      group.path,
      std::string("echo ") + names.unlimited + " > " + (group.directory / names.limit).string(),
      *limit, *used - std::min(cache, *used)};
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
  const Names one{"memory.limit_in_bytes",
                  "-1",
                  "memory.usage_in_bytes",
                  {"total_inactive_file", "total_active_file"}};
  const Names two{"memory.max", "max", "memory.current", {"inactive_file", "active_file"}};
  for (const Cgroup& group : cgroups_of("memory", root))
    if (auto limit = limit_of(group, group.version == 1 ? one : two, memory.total))
      memory.cgroups.push_back(std::move(*limit));
  return memory;
}

void volunteer_for_oom_kill() { std::ofstream("/proc/self/oom_score_adj") << 500; }

}  // namespace canopy
