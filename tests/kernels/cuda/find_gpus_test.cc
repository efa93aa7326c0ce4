// Reports on a machine's GPUs, from a CUDA runtime that is played.
#include "kernels/cuda/find_gpus.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/error_of.h"

namespace {

struct Played {
  std::string name;
  int major = 8, minor = 0;
};
struct Machine {
  int driver = 13'000;
  cudaError_t answer = cudaSuccess;
  std::vector<Played> gpus = {};
};
Machine machine;

}  // namespace

extern "C" {
cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine.driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13'000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(machine.gpus.size());
  return machine.answer;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int ordinal) {
  const Played& gpu = machine.gpus.at(static_cast<std::size_t>(ordinal));
  std::strncpy(properties->name, gpu.name.c_str(), sizeof properties->name - 1);
  properties->totalGlobalMem = std::size_t{48} << 30;
  properties->major = gpu.major;
  properties->minor = gpu.minor;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int ordinal) {
  std::snprintf(address, static_cast<std::size_t>(size), "0000:0%c:00.0", 'A' + ordinal);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "it was made to fail"; }
const char* cudaGetErrorName(cudaError_t) { return "cudaErrorOfATest"; }
}

namespace canopy::cuda {
namespace {

TEST(FindGpus, ThoseThatAreTooOldAreLeftOutAndTheOthersKeepTheirNumbers) {
  machine = {.gpus = {{"RTX 2080 Ti", 7, 5}, {"L40", 8, 9}, {"H100", 9, 0}}};
  const Gpus found = find_gpus();
  ASSERT_EQ(found.all.size(), 2u);
  EXPECT_EQ(found.all[0].name, "L40");
  EXPECT_EQ(found.all[0].ordinal, 1);
  EXPECT_EQ(found.all[0].pci_address, "0000:0b:00.0");
  EXPECT_EQ(found.find(2)->name, "H100");
  EXPECT_EQ(found.find(0), nullptr);
  EXPECT_FALSE(found.refused);
  EXPECT_NO_THROW(require_gpu(1));
  const std::string why = error_of([] { require_gpu(0); });
  EXPECT_NE(why.find("GPU 0, RTX 2080 Ti, is too old"), std::string::npos) << why;
  EXPECT_NE(why.find("7.5, and 8.0 or newer"), std::string::npos) << why;
  EXPECT_NE(error_of([] { require_gpu(3); }).find("this machine has 3"), std::string::npos);
}

TEST(FindGpus, WhereAllAreTooOldTheReasonIsSaid) {
  machine = {.gpus = {{"V100", 7, 0}}};
  const Gpus found = find_gpus();
  EXPECT_TRUE(found.all.empty());
  EXPECT_TRUE(found.refused);
  EXPECT_NE(found.why_none.find("V100"), std::string::npos) << found.why_none;
  EXPECT_NE(found.why_none.find("compute capability 7.0"), std::string::npos) << found.why_none;
}

TEST(FindGpus, ADriverThatIsTooOldIsNamedWithItsVersionAndTheProgramsOwn) {
  machine = {.driver = 12'040, .answer = cudaErrorInsufficientDriver};
  const Gpus found = find_gpus();
  EXPECT_TRUE(found.refused);
  for (const std::string& why : {found.why_none, error_of([] { require_gpu(0); })}) {
    EXPECT_NE(why.find("too old"), std::string::npos) << why;
    EXPECT_NE(why.find("the program has CUDA 13.0"), std::string::npos) << why;
    EXPECT_NE(why.find("the driver supports CUDA 12.4"), std::string::npos) << why;
  }
  EXPECT_EQ(found.versions, "the program has CUDA 13.0, the driver supports CUDA 12.4");
}

TEST(FindGpus, AMachineWithoutAGpuHasNoneThatIsRefused) {
  machine = {.driver = 0, .answer = cudaErrorInsufficientDriver};
  EXPECT_FALSE(find_gpus().refused);
  EXPECT_EQ(find_gpus().why_none, "no NVIDIA driver is installed");
  EXPECT_EQ(find_gpus().versions, "the program has CUDA 13.0, the driver is not installed");
  machine = {.answer = cudaErrorNoDevice};
  EXPECT_FALSE(find_gpus().refused);
  EXPECT_EQ(find_gpus().why_none, "the NVIDIA driver finds no GPU");
  machine = {.answer = cudaErrorSystemNotReady};
  EXPECT_TRUE(find_gpus().refused);
  EXPECT_NE(find_gpus().why_none.find("it was made to fail"), std::string::npos);
}

}  // namespace
}  // namespace canopy::cuda
