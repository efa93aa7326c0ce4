#pragma once
#include <algorithm>
#include <cstddef>

#include "kernels/device.h"

namespace canopy {

/// Memory of a device for the last part that takes any: as planned, it leaves what the plan keeps
/// for the driver. Where the device has less than it reported it is smaller, by whole `unit`s and
/// at least `least` bytes, and what the driver needs is asked for, too, and given back: kernels
/// load later. Throws DeviceFull, with `what`, where not even the least fits.
inline Buffer allocate_what_fits(Device& device, std::size_t wished, std::size_t least,
                                 std::size_t unit, const char* what) {
  const std::size_t kept = device.driver_share().fixed;
  for (std::size_t size = wished;;) {
    try {
      const Buffer spare = size < wished ? device.allocate(kept) : Buffer();
      return device.allocate(size);
    } catch (const DeviceFull& full) {
      if (size <= least) throw full.with(what);
      size = std::max(least, size - std::max<std::size_t>(1, size / unit / 16) * unit);
    }
  }
}

}  // namespace canopy
