#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace canopy {

/// Resident memory of this process as the kernel counts it (VmRSS, VmHWM), in bytes. Throws Error
/// where /proc is missing.
std::uint64_t resident_memory();
std::uint64_t peak_resident_memory();

/// A memory cgroup, of version 1 or 2, that this process is in and that has a limit. Bytes.
struct CgroupMemory {
  std::string path;  // as /proc/self/cgroup names it, or one above
  std::string lift;  // the command that takes the limit away, for root
  std::uint64_t limit = 0;
  std::uint64_t used = 0;  // page cache that the kernel would give back is not counted
};

/// Memory that this process could still take without making anybody swap. Bytes.
struct SystemMemory {
  std::uint64_t total = 0, available = 0;  // of the machine: MemTotal, MemAvailable
  std::vector<CgroupMemory> cgroups;       // its own and those above it
  /// Bytes that the kernel still promises to anybody; no limit unless vm.overcommit_memory is 2.
  std::uint64_t promised = UINT64_MAX;
  /// The least of what the machine, each cgroup and the kernel's promises have left.
  std::uint64_t free() const;
};

/// `root` is where /proc and /sys hang: tests make their own. Throws Error where /proc/meminfo is
/// missing; a cgroup that cannot be read is taken to have no limit.
SystemMemory system_memory(const std::filesystem::path& root = "/");

/// Asks the kernel to choose this process before others when it must kill one. Where it refuses,
/// nothing changes.
void volunteer_for_oom_kill();

}  // namespace canopy
