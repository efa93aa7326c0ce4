#include "kernels/cpu/cpu_device.h"
#include "kernels/device.h"
#include "src/base/error.h"

namespace canopy {

std::unique_ptr<Device> make_device(const DeviceChoice& choice) {
  if (choice.kind == "cpu") return std::make_unique<cpu::CpuDevice>(choice);
  throw Error("this build has no device of kind '" + choice.kind + "'; built in: cpu");
}

}  // namespace canopy
