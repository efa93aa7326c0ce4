#include "kernels/cuda/find_gpus.h"

#include <cuda_runtime.h>

#include <cctype>
#include <optional>
#include <string>

#include "kernels/cuda/check.h"

namespace canopy::cuda {

namespace {

// Compute capability of the oldest GPUs that the kernels are compiled for (CMakeLists.txt).
constexpr int kOldestMajor = 8;

/// 12040 as "12.4".
std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string versions() {
  int program = 0, driver = 0;
  cudaRuntimeGetVersion(&program);
  cudaDriverGetVersion(&driver);
  return "the program has CUDA " + version(program) + ", the driver " +
         (driver == 0 ? "is not installed" : "supports CUDA " + version(driver));
}

/// Counts the GPUs that the driver has, of any age. Throws Error if it cannot be used.
int count_gpus() {
  int count = 0;
  const cudaError_t answer = cudaGetDeviceCount(&count);
  if (answer == cudaErrorNoDevice) return 0;
  if (answer == cudaErrorInsufficientDriver)
    throw Error("no GPU can be used, for the NVIDIA driver is too old: " + versions() +
                "; install a newer driver, or build with an older CUDA compiler (12 or newer)");
  check(answer, "no GPU can be used");
  return count;
}

cudaDeviceProp properties_of(int ordinal) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, ordinal), "reading a GPU's properties");
  return properties;
}

/// The reason for which kernels do not run on it, if they do not.
std::optional<std::string> fault_of(const cudaDeviceProp& gpu, int ordinal) {
  if (gpu.major >= kOldestMajor) return std::nullopt;
  return "GPU " + std::to_string(ordinal) + ", " + gpu.name + ", is too old: it has compute " +
         "capability " + std::to_string(gpu.major) + "." + std::to_string(gpu.minor) + ", and " +
         std::to_string(kOldestMajor) + ".0 or newer is needed";
}

}  // namespace

Gpus find_gpus() {
  Gpus found;
  found.versions = versions();
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    found.why_none = "no NVIDIA driver is installed";
    return found;
  }
  std::string too_old;
  try {
    const int count = count_gpus();
    for (int i = 0; i < count; ++i) {
      const cudaDeviceProp properties = properties_of(i);
      if (const auto fault = fault_of(properties, i)) {
        too_old += (too_old.empty() ? "" : "; ") + *fault;
        continue;
      }
      char address[32] = {};
      check(cudaDeviceGetPCIBusId(address, sizeof address, i), "reading a GPU's address");
      std::string lower = address;  // as the kernel spells it
      for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      found.all.push_back({properties.name, properties.totalGlobalMem, lower, i});
    }
    if (!found.all.empty()) return found;
    found.refused = !too_old.empty();
    found.why_none = found.refused ? too_old : "the NVIDIA driver finds no GPU";
  } catch (const Error& why) {
    found.all.clear();
    found.refused = true;
    found.why_none = why.what();
  }
  return found;
}

void require_gpu(int ordinal) {
  const int count = count_gpus();
  if (ordinal < 0 || ordinal >= count)
    throw Error("there is no GPU " + std::to_string(ordinal) + ": this machine has " +
                std::to_string(count));
  if (const auto fault = fault_of(properties_of(ordinal), ordinal)) throw Error(*fault);
}

}  // namespace canopy::cuda
