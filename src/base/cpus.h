#pragma once
#include <pthread.h>

#include <span>
#include <vector>

namespace canopy {

/// The CPUs that the calling thread may run on, ascending; threads made by it inherit them.
std::vector<int> allowed_cpus();

/// Binds a thread to `cpus`; empty: leaves it where it is. Throws Error if refused.
void bind_thread(pthread_t thread, std::span<const int> cpus);

}  // namespace canopy
