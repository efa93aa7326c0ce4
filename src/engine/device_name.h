#pragma once
#include <optional>
#include <string_view>

#include "kernels/device.h"

namespace canopy {

/// Finds the device that a user names: "auto" (a GPU, if there is one that can be used; a note says
/// so if there are others alone), "cpu", "cuda" or "cuda:N". Nothing for any other name. `gpus`:
/// those of another machine; without them, this one's.
std::optional<DeviceChoice> device_named(std::string_view name,
                                         const std::optional<Gpus>& gpus = std::nullopt);

}  // namespace canopy
