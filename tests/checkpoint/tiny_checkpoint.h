#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "offload/unit_layout.h"
#include "src/base/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_tensors.h"
#include "tests/temp_dir.h"
#include "tests/tiny_config.h"

namespace canopy::test {

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, count - i));
  }
  return bytes;
}

inline std::filesystem::path write_file(const std::filesystem::path& path,
                                        const std::vector<std::byte>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return path;
}

struct TinyShape {
  int layers = 3, dim = 64, hidden = 160, vocab = 97;
  int files = 1;
  bool tied = false, bias = false, qk_norm = false;
  std::uint64_t seed = 1;
  bool unequal = false;  // layers of the kinds of unequal_config(), whatever the others say
};

/// A model of random bytes, its tensors scattered over files at odd offsets; what is in them, and
/// how they are swept.
struct TinyCheckpoint {
  Checkpoint checkpoint;
  std::map<std::string, std::vector<std::byte>> content;
  SweepLayout sweep;
};

inline TinyCheckpoint make_tiny(const std::filesystem::path& directory, const TinyShape& shape) {
  ModelConfig config;
  config.architecture = "llama";
  config.layers = shape.layers;
  config.dim = shape.dim;
  config.hidden_dim = shape.hidden;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.vocab = shape.vocab;
  config.tied_head = shape.tied;
  config.layer_kinds = {{.qkv_bias = shape.bias, .qk_norm = shape.qk_norm}};
  if (shape.unequal) {
    const ModelConfig unequal = unequal_config();
    config.layers = unequal.layers;
    config.layer_kinds = unequal.layer_kinds;
    config.kind_of_layer = unequal.kind_of_layer;
  }

  std::vector<TensorEntry> tensors;
  const auto add = [&](std::string name, DType dtype, std::vector<std::int64_t> extents) {
    std::uint64_t bytes = row_bytes(dtype, extents.back());
    if (extents.size() == 2) bytes *= static_cast<std::uint64_t>(extents[0]);
    tensors.push_back({std::move(name), dtype, std::move(extents), 0, 0, bytes});
  };
  const auto dtype_of = [](TensorRole role) {
    switch (role) {
      case TensorRole::kMlpNorm:
      case TensorRole::kUp:
      case TensorRole::kValueBias:
        return DType::kF32;
      case TensorRole::kValue:
        return DType::kQ8_0;
      case TensorRole::kDown:
        return DType::kQ4_0;
      case TensorRole::kKeyBias:
        return DType::kF16;
      default:
        return DType::kBF16;
    }
  };
  for_each_tensor(config, [&](const ModelTensor& tensor) {
    add(tensor.name(), dtype_of(tensor.spec->role), tensor.shape(config));
  });

  std::mt19937_64 random(shape.seed);
  std::vector<std::vector<std::byte>> data(static_cast<std::size_t>(shape.files));
  std::map<std::string, std::vector<std::byte>> content;
  for (TensorEntry& tensor : tensors) {
    tensor.file = static_cast<int>(random() % data.size());
    std::vector<std::byte>& file = data[static_cast<std::size_t>(tensor.file)];
    // Neighbours that touch, small gaps to odd offsets, and now and then whole pages in between.
    const std::uint64_t kind = random() % 4;
    file.resize(file.size() + (kind == 0 ? 0 : kind == 3 ? random() % 20'000 : random() % 64));
    tensor.offset = file.size();
    content[tensor.name] = random_bytes(tensor.bytes, random());
    file.insert(file.end(), content[tensor.name].begin(), content[tensor.name].end());
  }
  std::vector<std::filesystem::path> files;
  for (std::size_t i = 0; i < data.size(); ++i)
    files.push_back(write_file(directory / ("shard" + std::to_string(i)), data[i]));
  Checkpoint checkpoint(directory, std::move(files), std::move(tensors), std::move(config), {});
  SweepLayout sweep = lay_out_sweep(checkpoint);
  return {std::move(checkpoint), std::move(content), std::move(sweep)};
}

}  // namespace canopy::test
