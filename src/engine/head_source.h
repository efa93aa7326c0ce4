#pragma once
#include <memory>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/medusa_heads.h"
#include "src/speculation/draft_source.h"

namespace canopy {

/// These heads of this model as a draft (arXiv:2401.10774). Where they have no matrices of their
/// own, a copy of the model's head belongs to them: that one may be on its way while they guess.
std::shared_ptr<const DraftSource> head_source(const MedusaHeads& heads, const Checkpoint& model);

}  // namespace canopy
