#include "src/convert/source_files.h"

#include "src/base/utf8.h"

namespace canopy {

std::string model_name(const Checkpoint& model) {
  if (const auto* name = model.metadata().find<std::string>("general.name")) return to_utf8(*name);
  std::filesystem::path root = std::filesystem::absolute(model.root()).lexically_normal();
  if (!root.has_filename()) root = root.parent_path();
  return root.filename().string();
}

}  // namespace canopy
