#include "src/convert/random_checkpoint.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <utility>
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
  if (c.layer(0).qkv_bias)
    for (const auto& [name, rows] : {std::pair{"q", q}, {"k", kv}, {"v", kv}})
      tensors.push_back({"self_attn." + std::string(name) + "_proj.bias", {rows}});
  if (c.layer(0).qk_norm)
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

bool is_norm(const TensorEntry& tensor) { return tensor.name.find("norm") != std::string::npos; }

/// Norms are ones: the values of a real model's layers stay finite on their way.
void fill_row(const RandomWeights& random, const TensorEntry& tensor, std::int64_t row,
              std::vector<std::byte>& out) {
  const std::uint64_t seed = RandomWeights::hash(tensor.name);
  const auto at = static_cast<std::uint32_t>(row);
  if (tensor.dtype != DType::kBF16) {
    random.fill_blocks(seed, at, tensor.dtype, out);
    return;
  }
  std::vector<std::uint16_t> values(out.size() / 2, 0x3f80);
  if (!is_norm(tensor)) random.fill(seed, at, values);
  std::memcpy(out.data(), values.data(), out.size());
}

}  // namespace

Checkpoint lay_out_random_checkpoint(const RandomModel& model, LayerBytes layers,
                                     const std::filesystem::path& file) {
  const ModelConfig& shape = model.shape;
  require(shape.layers > 0 && shape.dim > 0 && shape.hidden_dim > 0 && shape.vocab > 0 &&
              shape.kv_heads > 0 && shape.head_dim > 0 && shape.heads % shape.kv_heads == 0,
          "a shape needs layers, dimensions, heads and a vocabulary");
  std::vector<TensorEntry> tensors;
  std::uint64_t end = 0;
  const auto add = [&](const Shaped& tensor, DType packed) {
    const DType dtype = tensor.shape.size() == 1 ? DType::kBF16 : packed;
    const std::uint64_t rows =
        tensor.shape.size() == 1 ? 1 : static_cast<std::uint64_t>(tensor.shape.front());
    const std::uint64_t bytes = rows * row_bytes(dtype, tensor.shape.back());
    tensors.push_back({tensor.name, dtype, tensor.shape, 0, end, bytes});
    end += bytes;
  };
  for (const Shaped& tensor : layer_tensors(shape)) {
    add({"model.layers.0." + tensor.name, tensor.shape}, model.type);
  }
  const std::size_t of_layer = tensors.size();
  const DType outside = model.type == DType::kBF16 ? DType::kBF16 : DType::kQ8_0;
  for (const Shaped& tensor : other_tensors(shape)) add(tensor, outside);
  for (int layer = 1; layer < shape.layers; ++layer)
    for (std::size_t i = 0; i < of_layer; ++i) {
      TensorEntry next = tensors[i];
      next.name.replace(std::string_view("model.layers.").size(), 1, std::to_string(layer));
      if (layers == LayerBytes::kOwn) {
        next.offset = end;
        end += next.bytes;
      }
      tensors.push_back(std::move(next));
    }
  return {file, {file}, std::move(tensors), shape, Metadata()};
}

Checkpoint write_random_checkpoint(
    const RandomModel& model, const std::filesystem::path& file,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress,
    const std::stop_token& stop) {
  Checkpoint made = lay_out_random_checkpoint(model, LayerBytes::kShared, file);
  std::map<std::uint64_t, const TensorEntry*> once;  // by offset: each layer's are the same
  std::uint64_t all = 0;
  for (const TensorEntry& tensor : made.tensors())
    if (once.emplace(tensor.offset, &tensor).second) all += tensor.bytes;
  std::ofstream out(file, std::ios::binary);
  const RandomWeights random(1);
  std::vector<std::byte> row;
  std::uint64_t done = 0;
  try {
    for (const auto& [offset, entry] : once) {
      const TensorEntry& tensor = *entry;
      const std::int64_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
      row.resize(row_bytes(tensor.dtype, tensor.shape.back()));
      for (std::int64_t r = 0; r < rows; ++r) {
        fill_row(random, tensor, r, row);
        out.write(reinterpret_cast<const char*>(row.data()), std::ssize(row));
        done += row.size();
        if (stop.stop_requested()) throw Stopped();
        if (progress) progress(done, all);
      }
    }
    if (!out.flush()) throw Error("cannot write " + file.string() + ": " + std::strerror(errno));
  } catch (...) {
    out.close();
    std::filesystem::remove(file);
    throw;
  }
  return made;
}

}  // namespace canopy
