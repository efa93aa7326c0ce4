#pragma once
// Models of the repository that ranks share.
#include <algorithm>
#include <filesystem>

#include "src/checkpoint/checkpoint.h"

namespace canopy::testing {

/// True of a model that `canopy pack` has to lay out by rows first.
inline bool is_read_by_pack_alone(const std::filesystem::path& model) {
  const Checkpoint checkpoint = Checkpoint::open(model, Holes::kRefused, Rows::kToBeMade);
  return std::ranges::any_of(checkpoint.tensors(),
                             [](const TensorEntry& tensor) { return tensor.parts != nullptr; });
}

}  // namespace canopy::testing
