#pragma once
#include <filesystem>
#include <stop_token>
#include <string>

#include "src/cli/options/model/model_options.h"

namespace canopy::cli {

/// Help of --repack.
inline constexpr const char* kRepackHelp =
    "write a model in 4 or 8 bits whose weights do not lie by rows to this directory, as `canopy "
    "pack` does, and take that; one that is there already, of the same model, is taken as it is, "
    "and one that was cut is gone on with";

/// Returns the directory of a model that lies by rows: `directory`, which is written first where it
/// is not there, or with a note `model` where that lies so itself. stderr reports the progress.
/// Throws Error if `directory` is of another model, and as pack(); Stopped.
std::filesystem::path by_rows(const std::string& model, const std::string& directory,
                              const ModelOptions& options, const std::stop_token& stop);

}  // namespace canopy::cli
