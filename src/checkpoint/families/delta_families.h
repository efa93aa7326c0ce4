#pragma once
// Private to families.cc: families some of whose layers are delta nets.
#include <array>

#include "src/checkpoint/families/tables.h"
#include "src/checkpoint/readers.h"

namespace canopy {

/// Kinds of layers of Qwen3.5: each fourth layer attends, the others keep states.
constexpr auto kDeltaAndFull = [] {
  return std::array{LayerConfig{.attention = false, .recurrent = true},
                    LayerConfig{.qk_norm = true, .output_gate = true}};
}();
constexpr auto kDeltaAndFullExperts = [] {
  auto kinds = kDeltaAndFull;
  for (LayerConfig& kind : kinds) kind.experts = true;
  return kinds;
}();
constexpr std::array kDeltaGgufNames{
    StoredName{TensorRole::kMlpNorm, "blk.#.post_attention_norm.weight"},
    StoredName{TensorRole::kDeltaMixed, "blk.#.attn_qkv.weight"}};
/// Gate and up of all experts, and down of all, as files have them that are not of each expert.
constexpr std::array kQwen35Experts{
    FusedRows{"model.layers.#.mlp.experts.gate_up_proj",
              "blk.#.ffn_gate_up_exps.weight",
              {TensorRole::kExpertGate, TensorRole::kExpertUp}},
    FusedRows{"model.layers.#.mlp.experts.down_proj", "", {TensorRole::kExpertDown}}};

constexpr std::array<std::string_view, 3> kDeltaKeys{
    "linear_num_key_heads", "linear_num_value_heads", "linear_conv_kernel_dim"};

constexpr Family kQwen35{.name = "qwen3_5_text",
                         .hf_class = "Qwen3_5ForCausalLM",
                         .gguf = "qwen35",
                         .layer_kinds = kDeltaAndFull,
                         .draft_layers = true,
                         .rotated = 0.25,
                         .period = 4,
                         .norms_less_one = true,
                         .delta = true,
                         .own_keys = kDeltaKeys,
                         .read_config = read_qwen3_5_config,
                         .gguf_names = kDeltaGgufNames};
constexpr Family kQwen35Moe{.name = "qwen3_5_moe_text",
                            .hf_class = "Qwen3_5MoeForCausalLM",
                            .gguf = "qwen35moe",
                            .layer_kinds = kDeltaAndFullExperts,
                            .mixture = true,
                            .shared_experts = true,
                            .shared_switch = true,
                            .draft_layers = true,
                            .rotated = 0.25,
                            .period = 4,
                            .norms_less_one = true,
                            .delta = true,
                            .own_keys = kDeltaKeys,
                            .read_config = read_qwen3_5_moe_config,
                            .stored_names = kQwen2MoeNames,
                            .gguf_names = kDeltaGgufNames,
                            .fused = kQwen35Experts};
constexpr Family kQwen3Next = [] {
  Family family = kQwen35Moe;
  family.name = "qwen3_next";
  family.hf_class = "Qwen3NextForCausalLM";
  family.gguf = "qwen3next";
  family.joined_delta = true;
  family.read_config = read_qwen3_next_config;
  return family;
}();

}  // namespace canopy
