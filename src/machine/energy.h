#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace canopy {

/// One value for each counter, in the order of EnergyMeter::counters(). NaN: the counter could not
/// be read.
using Joules = std::vector<double>;
Joules operator-(const Joules& later, const Joules& earlier);
Joules& operator+=(Joules& sum, const Joules& more);  // an empty sum becomes `more`

/// A meter of the energy that the machine's counters report, used by whomever: RAPL's processor
/// packages and their memory, from Linux's powercap files, and NVIDIA's GPUs, from NVML. Nothing is
/// counted twice: parts of a package are left out, and so is the whole platform (psys) where
/// packages count. One thread.
/// Source: Linux, Documentation/power/powercap; NVML API reference.
class EnergyMeter {
 public:
  /// Reads the files under root and loads a library by its name: tests replace both.
  explicit EnergyMeter(const std::filesystem::path& root = "/",
                       const std::string& nvml = "libnvidia-ml.so.1");

  std::vector<std::string> counters() const;
  /// Returns counters that the machine lacks or refuses, with the reasons.
  const std::vector<std::string>& missing() const { return missing_; }

  /// Used since the meter was made.
  Joules read();
  /// Reads if the last time was long ago: RAPL's counters begin again within minutes, and only one
  /// such turn between two readings can be noticed.
  void keep_up();

 private:
  /// Reads units of its own; nothing, and `why`, where it cannot be read.
  using Read = std::function<std::optional<std::uint64_t>(std::string& why)>;
  struct Counter {
    std::string name;
    Read read;
    double joules_per_unit = 0;
    std::uint64_t range = 0;  // it begins again after this; 0: it does not
    std::uint64_t last = 0;
    double joules = 0;
  };
  void find_packages(const std::filesystem::path& root);
  void find_gpus(const std::string& library);
  void add(Counter counter);

  std::vector<Counter> counters_;
  std::vector<std::string> missing_;
  std::chrono::steady_clock::time_point last_read_ = std::chrono::steady_clock::now();
};

}  // namespace canopy
