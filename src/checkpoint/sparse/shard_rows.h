#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace canopy {

/// The file of a shard's directory that has what digits_of_rows() returned when it was written.
inline constexpr const char* kShardRowsFile = "canopy_shard_rows.json";

std::string rows_to_json(const std::map<std::string, std::string>& digits);
/// Reads them back, next to a model's files. Throws Error naming the file and what is wrong with
/// it.
std::map<std::string, std::string> read_shard_rows(const std::filesystem::path& model);

}  // namespace canopy
