#include "src/convert/source_files.h"

#include <fstream>
#include <iterator>

#include "src/base/error.h"

namespace canopy {

std::string read_text_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Error("cannot read " + path.string());
  return text;
}

std::string model_name(const Checkpoint& model) {
  if (const auto* name = model.metadata().find<std::string>("general.name")) return *name;
  std::filesystem::path root = std::filesystem::absolute(model.root()).lexically_normal();
  if (!root.has_filename()) root = root.parent_path();
  return root.filename().string();
}

}  // namespace canopy
