#include "src/base/cpus.h"

#include <sched.h>

#include <string>

#include "src/base/error.h"

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
