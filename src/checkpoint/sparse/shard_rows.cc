#include "src/checkpoint/sparse/shard_rows.h"

#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/json.h"

namespace canopy {

std::string rows_to_json(const std::map<std::string, std::string>& digits) {
  return nlohmann::json(digits).dump(1) + "\n";
}

std::map<std::string, std::string> read_shard_rows(const std::filesystem::path& model) {
  std::error_code ignored;
  const bool directory = std::filesystem::is_directory(model, ignored);
  const std::filesystem::path file = (directory ? model : model.parent_path()) / kShardRowsFile;
  const nlohmann::json json = read_json(file, kMostSettingsBytes, FileKind::kOfModel);
  return in_context("reading " + file.string(), [&] {
    if (!json.is_object()) throw Error("it is no object");
    std::map<std::string, std::string> digits;
    for (const auto& [tensor, value] : json.items()) {
      if (!value.is_string()) throw Error("it has something else than texts");
      digits.emplace(tensor, value.get<std::string>());
    }
    return digits;
  });
}

}  // namespace canopy
