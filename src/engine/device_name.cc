#include "src/engine/device_name.h"

#include <charconv>

namespace canopy {

std::optional<DeviceChoice> device_named(std::string_view name, const std::optional<Gpus>& gpus) {
  constexpr std::string_view kOrdinal = "cuda:";
  DeviceChoice device;
  if (name == "auto") {
    const Gpus found = gpus ? *gpus : find_gpus();
    device.kind = found.all.empty() ? "cpu" : "cuda";
    if (!found.all.empty()) device.ordinal = found.all.front().ordinal;
    if (found.refused) device.note = "all is computed on the CPU: " + found.why_none;
  } else if (name.starts_with(kOrdinal)) {
    device.kind = "cuda";
    const char* const end = name.data() + name.size();
    const auto [next, error] = std::from_chars(name.data() + kOrdinal.size(), end, device.ordinal);
    if (error != std::errc() || next != end || device.ordinal < 0) return std::nullopt;
  } else if (name == "cpu" || name == "cuda") {
    device.kind = name;
  } else {
    return std::nullopt;
  }
  return device;
}

}  // namespace canopy
