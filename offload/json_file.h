#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace canopy {

/// Parses a small JSON file of the user's. Throws Error naming the file: not JSON, over 4 MiB,
/// nested deeper than 32, or a key given twice in one object.
nlohmann::json read_json(const std::filesystem::path& file);

}  // namespace canopy
