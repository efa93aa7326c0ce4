#pragma once
#include <filesystem>
#include <span>
#include <vector>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// Gives matrices of NVFP4 in a GGUF file the factors of their products, as converters write them:
/// NAME.scale F32, one number or one for each stacked expert, next to NAME.weight. These tensors
/// are then left out, and so are NAME.input_scale, of activations, which are not quantised. Says in
/// the config what there was. Throws Error naming a factor of another type or shape, one that is
/// not finite and above zero, or one of the embedding, whose rows are no products.
void take_product_factors(std::span<const std::filesystem::path> files,
                          std::vector<TensorEntry>& tensors, ModelConfig& config);

}  // namespace canopy
