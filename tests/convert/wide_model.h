#pragma once
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/checkpoint/families.h"
#include "src/checkpoint/model_tensors.h"
#include "src/convert/enlarge/random_weights.h"
#include "src/convert/safetensors/hf_files.h"
#include "src/convert/safetensors/safetensors_writer.h"
#include "tests/convert/tiny_outputs.h"

namespace canopy::test {

/// Writes a model of random weights like a tiny one of tests/data/model, of a family that has no
/// enlargements: rows of 252 columns and more, which become smaller when they are packed. `more`:
/// keys of its config.
inline Checkpoint write_wide_model(const std::string& name, const std::filesystem::path& directory,
                                   const nlohmann::json& more = nlohmann::json::object()) {
  const Checkpoint tiny = tiny_model(name);
  std::filesystem::create_directories(directory);
  copy_hf_files(tiny, directory);
  nlohmann::json config = nlohmann::json::parse(contents(tiny.root() / "config.json"));
  config["hidden_size"] = 252;
  config["word_embed_proj_dim"] = tiny.config().projects() ? 260 : 252;
  config["num_attention_heads"] = config["n_head"] = 6;
  if (name == "bloom") config.erase("num_attention_heads");
  config.update(more);
  std::ofstream(directory / "config.json") << config.dump();
  const ModelConfig shape = shape_from_config(config.dump());
  const Family& family = family_of(shape);
  std::vector<PlannedTensor> planned;
  for_each_tensor(shape, [&](const ModelTensor& tensor) {
    planned.push_back({stored_name(family, tensor.name()), tensor.shape(shape)});
  });
  SafetensorsWriter writer(directory, planned);
  const RandomWeights random(1);
  for (const PlannedTensor& tensor : planned) {
    std::vector<std::uint16_t> row(static_cast<std::size_t>(tensor.shape.back()));
    const std::int64_t rows = tensor.shape.size() == 1 ? 1 : tensor.shape[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      random.fill(RandomWeights::hash(tensor.name), static_cast<std::uint32_t>(r), row);
      writer.write(tensor.name, row);
    }
  }
  writer.finish();
  return Checkpoint::open(directory);
}

}  // namespace canopy::test
