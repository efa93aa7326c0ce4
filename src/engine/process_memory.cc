#include "src/engine/process_memory.h"

#include <fstream>
#include <string>

#include "src/base/error.h"

namespace canopy {

namespace {
std::uint64_t status_field(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kib = 0;
    if (word == field && status >> kib) return kib * 1024;
  }
  throw Error("/proc/self/status has no " + field + ": mount /proc");
}
}  // namespace

std::uint64_t resident_memory() { return status_field("VmRSS:"); }
std::uint64_t peak_resident_memory() { return status_field("VmHWM:"); }

}  // namespace canopy
