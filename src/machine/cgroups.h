#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace canopy {

/// A control group that this process is in, or one above it, as mounted here.
struct Cgroup {
  int version = 2;                  // of the interface: 1 or 2
  std::string path;                 // as /proc/self/cgroup names it: "/a/b"
  std::filesystem::path directory;  // with its files
};

/// Returns those that may limit `controller` ("memory", "cpu"), each before the one above it. Of
/// the files under root, which tests replace.
std::vector<Cgroup> cgroups_of(const std::string& controller, const std::filesystem::path& root);

}  // namespace canopy
