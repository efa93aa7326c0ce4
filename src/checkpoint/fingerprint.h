#pragma once
#include <string>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// What a model is, wherever it lies and whatever it is called: 16 hexadecimal digits (XXH3) of its
/// config, its tensors' names, types and shapes, and 64 bytes from the middle of each. A copy has
/// the same, a fine-tuned or rounded one another. Measurements are kept under it. Cheap: the bytes
/// between are not read. Throws: Error naming a file that cannot be read.
std::string fingerprint(const Checkpoint& model);

}  // namespace canopy
