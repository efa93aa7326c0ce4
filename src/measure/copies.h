#pragma once
#include <cstddef>
#include <string>

#include "kernels/device.h"

namespace canopy {

/// Bytes per second of copies between host and device, the best of some.
struct CopyRates {
  double up = 0, down = 0;  // to the device, from it; through locked memory
  double pageable_up = 0, pageable_down = 0;
  std::string refused;  // why memory could not be locked; the first two are pageable then
};
/// Takes `bytes` of either memory. Throws Error where there are not as many.
CopyRates measure_copies(Device& device, std::size_t bytes = std::size_t{256} << 20);

}  // namespace canopy
