#pragma once
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace canopy::test {

/// The CPUs that each thread of this process may run on, in the kernel's words ("0-3,8"), by thread
/// id; `name`: only of the threads called that.
inline std::map<int, std::string> thread_cpus(const std::string& name = "") {
  std::map<int, std::string> cpus;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool wanted = name.empty();
    for (std::string key, value; status >> key && std::getline(status >> std::ws, value);) {
      if (key == "Name:") wanted = wanted || value == name;
      if (key == "Cpus_allowed_list:" && wanted)
        cpus[std::stoi(task.path().filename().string())] = value;
    }
  }
  return cpus;
}

}  // namespace canopy::test
