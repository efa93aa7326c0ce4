#pragma once
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "src/checkpoint/families.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {

/// All that a new family takes: names, a reader and a row. Its keys and its tensors are called
/// otherwise, and its layers take turns: one has biases, the next normalises queries and keys.
inline constexpr std::array kToyNames{
    StoredName{TensorRole::kEmbedding, "transformer.wte.weight"},
    StoredName{TensorRole::kQuery, "transformer.h.#.attn.query.weight"},
    StoredName{TensorRole::kQueryBias, "transformer.h.#.attn.query.bias"},
    StoredName{TensorRole::kKeyNorm, "transformer.h.#.attn.key_norm.weight"},
    StoredName{TensorRole::kDown, "transformer.h.#.mlp.out.weight"},
    StoredName{TensorRole::kHead, "output.weight"},
};
/// Names in GGUF; the second is what a layer's MLP reads in other families' files.
inline constexpr std::array kToyGgufNames{
    StoredName{TensorRole::kMlpNorm, "blk.#.post_attention_norm.weight"},
    StoredName{TensorRole::kKeyNorm, "blk.#.ffn_norm.weight"},
};
inline constexpr std::array kToyKeys{std::pair{"num_hidden_layers", "n_layer"},
                                     std::pair{"hidden_size", "n_embd"},
                                     std::pair{"intermediate_size", "n_inner"}};

inline ModelConfig read_toy_config(const nlohmann::json& config, const Family& family) {
  nlohmann::json usual = config;
  for (const auto& [key, theirs] : kToyKeys) usual[key] = config.at(theirs);
  return read_decoder_config(usual, family);
}

inline constexpr std::array kToyLayers{LayerConfig{.qkv_bias = true}, LayerConfig{.qk_norm = true}};
inline constexpr std::array kToyFamilies{Family{.name = "toy",
                                                .hf_class = "ToyForCausalLM",
                                                .gguf = "toy",
                                                .layer_kinds = kToyLayers,
                                                .read_config = read_toy_config,
                                                .stored_names = kToyNames,
                                                .gguf_names = kToyGgufNames}};

/// A toy of four layers under the usual names: those of two models that have either kind.
inline TinyModel usual_toy() {
  TinyModel toy = tiny_model({.family = "qwen2", .layers = 4});
  std::erase_if(toy.tensors, [](const FileTensor& tensor) {
    const int layer = find_tensor(tensor.name)->layer;
    return layer >= 0 && layer % 2 == 1;
  });
  for (const FileTensor& tensor : tiny_model({.family = "qwen3", .layers = 4, .seed = 2}).tensors) {
    const int layer = find_tensor(tensor.name)->layer;
    if (layer >= 0 && layer % 2 == 1) toy.tensors.push_back(tensor);
  }
  return toy;
}

/// The same as its directory has it.
inline TinyModel stored_toy() {
  TinyModel toy = usual_toy();
  toy.config["model_type"] = "toy";
  toy.config["architectures"] = {"ToyForCausalLM"};
  for (const auto& [key, theirs] : kToyKeys) {
    toy.config[theirs] = toy.config[key];
    toy.config.erase(key);
  }
  for (FileTensor& tensor : toy.tensors) {
    const ModelTensor usual = *find_tensor(tensor.name);
    for (const StoredName& stored : kToyNames)
      if (stored.role == usual.spec->role)
        tensor.name = with_numbers(stored.name, {std::to_string(usual.layer), ""});
  }
  return toy;
}

inline void write_toy_gguf(const std::filesystem::path& file) {
  TinyModel toy = usual_toy();
  toy.config["model_type"] = "toy";
  write_file(file, gguf_writer(toy, [](const std::string& canonical) {
                     return canopy::gguf_name(kToyFamilies[0], *find_tensor(canonical));
                   }).bytes());
}

}  // namespace canopy::testing
