#pragma once
#include <cstdint>
#include <filesystem>

#include "kernels/ranks.h"
#include "src/checkpoint/checkpoint.h"
#include "src/convert/output.h"

namespace canopy {

struct ShardReport {
  std::uint64_t bytes = 0, source_bytes = 0;  // of the weights' files: written; of the model
};

/// Writes what one of several ranks reads of a model into a directory: its files, as long as they
/// were, with holes in place of the other ranks' rows, and a ShardLabel. Every format stays as it
/// is. Throws Error: a format that cannot be cut so, or as StagedOutput; what `progress` throws.
ShardReport write_shard(const Checkpoint& model, const Share& share,
                        const std::filesystem::path& output, const Progress& progress = {});

}  // namespace canopy
