#pragma once
#include <string>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// Names a model in labels: general.name of a GGUF file, else its file or directory.
std::string model_name(const Checkpoint& model);

}  // namespace canopy
