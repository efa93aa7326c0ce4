#pragma once
// Private to make_plan().
#include <cstdint>

#include "src/engine/plan/decisions.h"

namespace canopy {

/// The ledgers of what was decided: everything but the target's weights.
MemoryPlan open_ledgers(const Decisions& decisions, const PlanRequest& request,
                        const ModelConfig& target, const DraftModels& drafts,
                        std::uint64_t process_bytes, const ScratchBytes& scratch_bytes);

}  // namespace canopy
