#pragma once
#include <filesystem>
#include <span>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

/// Throws Error if a tensor lies in a hole of its file, naming it. `tensors`: all of the file, by
/// place. A file system that knows no holes has none.
void refuse_holes(const std::filesystem::path& file, std::span<const TensorEntry> tensors);

}  // namespace canopy
