#include "src/convert/random_checkpoint.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/convert/random_weights.h"

namespace canopy {

namespace {

struct Shaped {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// Of one layer, without its number.
std::vector<Shaped> layer_tensors(const ModelConfig& c) {
  const std::int64_t dim = c.dim, q = std::int64_t{c.heads} * c.head_dim,
                     kv = std::int64_t{c.kv_heads} * c.head_dim, hidden = c.hidden_dim;
  std::vector<Shaped> tensors{
      {"input_layernorm.weight", {dim}},       {"self_attn.q_proj.weight", {q, dim}},
      {"self_attn.k_proj.weight", {kv, dim}},  {"self_attn.v_proj.weight", {kv, dim}},
      {"self_attn.o_proj.weight", {dim, q}},   {"post_attention_layernorm.weight", {dim}},
      {"mlp.gate_proj.weight", {hidden, dim}}, {"mlp.up_proj.weight", {hidden, dim}},
      {"mlp.down_proj.weight", {dim, hidden}}};
  if (c.qkv_bias)
    for (const auto& [name, rows] : {std::pair{"q", q}, {"k", kv}, {"v", kv}})
      tensors.push_back({"self_attn." + std::string(name) + "_proj.bias", {rows}});
  if (c.qk_norm)
    for (const char* name : {"self_attn.q_norm.weight", "self_attn.k_norm.weight"})
      tensors.push_back({name, {c.head_dim}});
  return tensors;
}

std::vector<Shaped> other_tensors(const ModelConfig& c) {
  std::vector<Shaped> tensors{{"model.norm.weight", {c.dim}},
                              {"model.embed_tokens.weight", {c.vocab, c.dim}}};
  if (!c.tied_head) tensors.push_back({"lm_head.weight", {c.vocab, c.dim}});
  return tensors;
}

/// Norms are ones: the values of a real model's layers stay finite on their way.
void fill_row(const RandomWeights& random, const TensorEntry& tensor, std::int64_t row,
              std::span<std::uint16_t> out) {
  if (tensor.name.find("norm") != std::string::npos)
    std::fill(out.begin(), out.end(), std::uint16_t{0x3f80});
  else
    random.fill(RandomWeights::hash(tensor.name), static_cast<std::uint32_t>(row), out);
}

}  // namespace

Checkpoint write_random_checkpoint(
    const ModelConfig& shape, const std::filesystem::path& file,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress,
    const std::stop_token& stop) {
  require(shape.layers > 0 && shape.dim > 0 && shape.hidden_dim > 0 && shape.vocab > 0 &&
              shape.kv_heads > 0 && shape.head_dim > 0 && shape.heads % shape.kv_heads == 0,
          "a shape needs layers, dimensions, heads and a vocabulary");
  std::vector<TensorEntry> written;
  std::uint64_t end = 0;
  const auto add = [&](const Shaped& tensor) {
    std::uint64_t bytes = 2;
    for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
    written.push_back({tensor.name, DType::kBF16, tensor.shape, 0, end, bytes});
    end += bytes;
  };
  for (const Shaped& tensor : layer_tensors(shape)) add(tensor);
  const std::size_t of_layer = written.size();
  for (const Shaped& tensor : other_tensors(shape)) add(tensor);

  std::ofstream out(file, std::ios::binary);
  const RandomWeights random(1);
  std::vector<std::uint16_t> row;
  std::uint64_t done = 0;
  try {
    for (const TensorEntry& tensor : written) {
      const std::int64_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
      row.resize(static_cast<std::size_t>(tensor.shape.back()));
      for (std::int64_t r = 0; r < rows; ++r) {
        fill_row(random, tensor, r, row);
        out.write(reinterpret_cast<const char*>(row.data()), std::ssize(row) * 2);
        done += row.size() * 2;
        if (stop.stop_requested()) throw Stopped();
        if (progress) progress(done, end);
      }
    }
    if (!out.flush()) throw Error("cannot write " + file.string() + ": " + std::strerror(errno));
  } catch (...) {
    out.close();
    std::filesystem::remove(file);
    throw;
  }

  std::vector<TensorEntry> tensors(written.begin() + static_cast<std::ptrdiff_t>(of_layer),
                                   written.end());
  for (int layer = 0; layer < shape.layers; ++layer)
    for (std::size_t i = 0; i < of_layer; ++i) {
      tensors.push_back(written[i]);
      tensors.back().name = "model.layers." + std::to_string(layer) + "." + written[i].name;
    }
  return {file, {file}, std::move(tensors), shape, Metadata()};
}

}  // namespace canopy
