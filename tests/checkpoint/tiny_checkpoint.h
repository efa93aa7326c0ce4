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
#include "tests/temp_dir.h"

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

  std::vector<TensorEntry> tensors;
  const auto add = [&](std::string name, DType dtype, std::vector<std::int64_t> extents) {
    std::uint64_t bytes = row_bytes(dtype, extents.back());
    if (extents.size() == 2) bytes *= static_cast<std::uint64_t>(extents[0]);
    tensors.push_back({std::move(name), dtype, std::move(extents), 0, 0, bytes});
  };
  const std::int64_t dim = shape.dim, q = 4 * 16, kv = 2 * 16;
  add("model.embed_tokens.weight", DType::kBF16, {shape.vocab, dim});
  if (!shape.tied) add("lm_head.weight", DType::kBF16, {shape.vocab, dim});
  add("model.norm.weight", DType::kBF16, {dim});
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    add(at + "input_layernorm.weight", DType::kBF16, {dim});
    add(at + "post_attention_layernorm.weight", DType::kF32, {dim});
    add(at + "self_attn.q_proj.weight", DType::kBF16, {q, dim});
    add(at + "self_attn.k_proj.weight", DType::kBF16, {kv, dim});
    add(at + "self_attn.v_proj.weight", DType::kQ8_0, {kv, dim});
    add(at + "self_attn.o_proj.weight", DType::kBF16, {dim, q});
    add(at + "mlp.gate_proj.weight", DType::kBF16, {shape.hidden, dim});
    add(at + "mlp.up_proj.weight", DType::kF32, {shape.hidden, dim});
    add(at + "mlp.down_proj.weight", DType::kQ4_0, {dim, shape.hidden});
    if (shape.bias) {
      add(at + "self_attn.q_proj.bias", DType::kBF16, {q});
      add(at + "self_attn.k_proj.bias", DType::kF16, {kv});
      add(at + "self_attn.v_proj.bias", DType::kF32, {kv});
    }
    if (shape.qk_norm) {
      add(at + "self_attn.q_norm.weight", DType::kBF16, {16});
      add(at + "self_attn.k_norm.weight", DType::kBF16, {16});
    }
  }

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
