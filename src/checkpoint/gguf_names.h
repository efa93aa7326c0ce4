#pragma once
#include <array>
#include <string_view>

namespace canopy {

/// What GGUF calls the tensors that have canonical (Hugging Face) names: of the model, and behind
/// "blk.N." of layer N ("model.layers.N." there).
struct GgufName {
  std::string_view gguf, canonical;
};
inline constexpr std::array kGgufGlobalNames{
    GgufName{"token_embd.weight", "model.embed_tokens.weight"},
    GgufName{"output_norm.weight", "model.norm.weight"},
    GgufName{"output.weight", "lm_head.weight"},
};
inline constexpr std::array kGgufLayerNames{
    GgufName{"attn_norm.weight", "input_layernorm.weight"},
    GgufName{"attn_q.weight", "self_attn.q_proj.weight"},
    GgufName{"attn_k.weight", "self_attn.k_proj.weight"},
    GgufName{"attn_v.weight", "self_attn.v_proj.weight"},
    GgufName{"attn_q.bias", "self_attn.q_proj.bias"},
    GgufName{"attn_k.bias", "self_attn.k_proj.bias"},
    GgufName{"attn_v.bias", "self_attn.v_proj.bias"},
    GgufName{"attn_q_norm.weight", "self_attn.q_norm.weight"},
    GgufName{"attn_k_norm.weight", "self_attn.k_norm.weight"},
    GgufName{"attn_output.weight", "self_attn.o_proj.weight"},
    GgufName{"ffn_norm.weight", "post_attention_layernorm.weight"},
    GgufName{"ffn_gate.weight", "mlp.gate_proj.weight"},
    GgufName{"ffn_up.weight", "mlp.up_proj.weight"},
    GgufName{"ffn_down.weight", "mlp.down_proj.weight"},
};

}  // namespace canopy
