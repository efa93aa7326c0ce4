#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// A shape and the type of its matrices: kBF16, a packed one, or a type in blocks, which leave
/// embedding and head in Q8_0, as canopy quantize does. Norms, biases and routers are BF16. FP8,
/// packed or not, leaves embedding and head in `vocab`; such a model is only laid out.
struct RandomModel {
  ModelConfig shape;
  DType type = DType::kBF16, vocab = DType::kBF16;
};

/// kShared: all layers are one, which is there once. So they take a layer's room on disk and, where
/// nothing else is said, in host memory; over a link each goes by itself.
/// kOwnInMemory: the same file, which each layer reads as if it were another: in host memory it has
/// bytes of its own. Experts of a layer are one all the same.
enum class LayerBytes : std::uint8_t { kShared, kOwn, kOwnInMemory };

/// Places the tensors of such a model in `file`, which need not exist. Throws Error if the shape is
/// none, or if its rows are not whole blocks of the type.
Checkpoint lay_out_random_checkpoint(const RandomModel& model, LayerBytes layers,
                                     const std::filesystem::path& file);

/// Such a file with random weights, for measuring what a model's bytes and arithmetic cost.
/// progress(bytes written, of all). Throws Error if the file cannot be written; Stopped on request,
/// without a file.
Checkpoint write_random_checkpoint(
    const RandomModel& model, LayerBytes layers, const std::filesystem::path& file,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress = {},
    const std::stop_token& stop = {});

}  // namespace canopy
