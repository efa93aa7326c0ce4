#pragma once
#include <filesystem>
#include <span>
#include <string_view>

#include "src/checkpoint/checkpoint.h"

namespace canopy {

inline constexpr std::string_view kFetchAgain =
    "the download is not complete; fetch the file again (--allow-holes takes a copy that was made "
    "sparse on purpose)";

/// Throws Error if a tensor lies in a hole of its file, naming it, and what follows: what to do.
/// `tensors`: all of the file, by place. A file system that knows no holes has none.
void refuse_holes(const std::filesystem::path& file, std::span<const TensorEntry> tensors,
                  std::string_view what_follows = kFetchAgain);

}  // namespace canopy
