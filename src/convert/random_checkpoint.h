#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>

#include "offload/checkpoint.h"

namespace canopy {

/// A model of this shape with random BF16 weights, for measuring what its bytes and its arithmetic
/// cost: one layer, the embedding and the head are written to `file`, and all layers are that one.
/// So it takes a layer's room on disk and, where nothing else is said, in host memory; over a link
/// to a device each layer goes by itself. progress(bytes written, of all). Throws Error if the file
/// cannot be written, or if the shape is none; Stopped on request, without a file.
Checkpoint write_random_checkpoint(
    const ModelConfig& shape, const std::filesystem::path& file,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress = {},
    const std::stop_token& stop = {});

}  // namespace canopy
