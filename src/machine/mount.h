#pragma once
#include <filesystem>
#include <string>

namespace canopy {

/// The mount that a file lies on, as /proc/self/mounts names it.
struct Mount {
  std::string device, point, type = "unknown", options;
  /// True if files there are memory themselves, without a disk.
  bool in_memory() const { return type == "tmpfs" || type == "ramfs"; }
};

/// Unknown where /proc is missing or the file is not there.
Mount mount_of(const std::filesystem::path& file);

}  // namespace canopy
