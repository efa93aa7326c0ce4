#pragma once
#include <cstdint>

#include "kernels/device.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/medusa_heads.h"
#include "src/engine/plan/plan.h"
#include "src/speculation/drafters/head_drafter.h"

namespace canopy {

/// The heads on a device, and behind them, where they have no matrices of their own, a copy of the
/// model's head: that one may be on its way while they guess.
struct LoadedHeads {
  Buffer memory;
  HeadWeights weights;
};
/// Throws Error if a file cannot be read or the device is full.
LoadedHeads load_heads(Device& device, const MedusaHeads& heads, const Checkpoint& model);

/// What a plan is to know of them. Pure.
HeadDraft head_draft(const MedusaHeads& heads, const Checkpoint& model);

}  // namespace canopy
