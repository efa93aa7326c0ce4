#include "src/machine/cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "src/base/error.h"
#include "src/machine/cgroups.h"

namespace canopy {

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    throw Error("this machine has more CPUs than the " + std::to_string(CPU_SETSIZE) +
                " that can be told apart");
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

std::optional<double> cpu_quota(const std::filesystem::path& root) {
  std::optional<double> least;
  for (const Cgroup& group : cgroups_of("cpu", root)) {
    double quota = 0, period = 0;  // microseconds; unlimited is "max" or -1
    if (group.version == 1) {
      std::ifstream(group.directory / "cpu.cfs_quota_us") >> quota;
      std::ifstream(group.directory / "cpu.cfs_period_us") >> period;
    } else {
      std::ifstream(group.directory / "cpu.max") >> quota >> period;
    }
    if (quota > 0 && period > 0) least = std::min(least.value_or(quota / period), quota / period);
  }
  return least;
}

void bind_thread(pthread_t thread, std::span<const int> cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE)
      throw Error("there is no CPU " + std::to_string(cpu) + " to bind to");
    CPU_SET(cpu, &set);
  }
  if (pthread_setaffinity_np(thread, sizeof set, &set) != 0)
    throw Error("cannot bind a thread to CPU " + std::to_string(cpus.front()) +
                (cpus.size() > 1 ? " and others" : "") + ": not one this process may run on");
}

}  // namespace canopy
