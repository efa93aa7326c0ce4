#pragma once
#include <pthread.h>

#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace canopy {

/// The CPUs that the calling thread may run on, ascending; threads made by it inherit them.
std::vector<int> allowed_cpus();

/// Returns the CPUs' worth of time that the cgroups over this process grant it; nothing where they
/// set no limit. Of the files under root, which tests replace.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// Binds a thread to `cpus`; empty: leaves it where it is. Throws Error if refused.
void bind_thread(pthread_t thread, std::span<const int> cpus);

}  // namespace canopy
