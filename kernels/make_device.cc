#include "kernels/arithmetic.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/linear.h"
#include "kernels/device.h"
#include "src/base/error.h"
#ifdef CANOPY_CUDA
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/find_gpus.h"
#endif

namespace canopy {

std::unique_ptr<Device> make_device(const DeviceChoice& choice) {
  if (choice.kind == "cpu") return std::make_unique<cpu::CpuDevice>(choice);
#ifdef CANOPY_CUDA
  if (choice.kind == "cuda") return cuda::make_cuda_device(choice);
  constexpr const char* kBuiltIn = "cpu, cuda";
#else
  constexpr const char* kBuiltIn = "cpu";
#endif
  throw Error("this build has no device of kind '" + choice.kind + "'; built in: " + kBuiltIn);
}

std::string cpu_arithmetic() { return cpu::instruction_set(); }

Gpus find_gpus() {
#ifdef CANOPY_CUDA
  return cuda::find_gpus();
#else
  return {{}, "this build has no CUDA backend"};
#endif
}

}  // namespace canopy
