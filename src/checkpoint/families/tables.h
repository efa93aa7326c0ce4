#pragma once
// Private to families.cc: what families' rows consist of.
#include <array>
#include <string_view>

#include "src/checkpoint/families.h"

namespace canopy {

constexpr std::array kBiasedQkv{LayerConfig{.qkv_bias = true}};
constexpr std::array kNormedQk{LayerConfig{.qk_norm = true}};

constexpr std::array kPostAttentionNorm{
    StoredName{TensorRole::kMlpNorm, "blk.#.post_attention_norm.weight"}};

constexpr std::array kExperts{LayerConfig{.experts = true}};
constexpr std::array kNormedQkExperts{LayerConfig{.qk_norm = true, .experts = true}};
constexpr std::array kWholeNormedQkExperts{
    LayerConfig{.qk_norm = true, .whole_qk_norm = true, .experts = true}};
constexpr auto kMixtralNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kRouter, "model.layers.#.block_sparse_moe.gate.weight"},
       {kExpertGate, "model.layers.#.block_sparse_moe.experts.@.w1.weight"},
       {kExpertUp, "model.layers.#.block_sparse_moe.experts.@.w3.weight"},
       {kExpertDown, "model.layers.#.block_sparse_moe.experts.@.w2.weight"}});
}();

constexpr std::array kGraniteMoeNames{
    StoredName{TensorRole::kRouter, "model.layers.#.block_sparse_moe.router.layer.weight"}};
/// Gate and up of all experts, and down of all.
constexpr std::array kStackedExperts{
    FusedRows{"model.layers.#.block_sparse_moe.input_linear.weight",
              "",
              {TensorRole::kExpertGate, TensorRole::kExpertUp}},
    FusedRows{
        "model.layers.#.block_sparse_moe.output_linear.weight", "", {TensorRole::kExpertDown}}};
constexpr std::array kErnieNames{
    StoredName{TensorRole::kChoiceBias, "model.layers.#.mlp.moe_statics.e_score_correction_bias"}};

constexpr std::array kBiasedQkvExperts{LayerConfig{.qkv_bias = true, .experts = true}};
constexpr auto kMinimaxNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kRouter, "model.layers.#.block_sparse_moe.gate.weight"},
       {kChoiceBias, "model.layers.#.block_sparse_moe.e_score_correction_bias"},
       {kExpertGate, "model.layers.#.block_sparse_moe.experts.@.w1.weight"},
       {kExpertUp, "model.layers.#.block_sparse_moe.experts.@.w3.weight"},
       {kExpertDown, "model.layers.#.block_sparse_moe.experts.@.w2.weight"}});
}();
constexpr auto kQwen2MoeNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kSharedGate, "model.layers.#.mlp.shared_expert.gate_proj.weight"},
       {kSharedUp, "model.layers.#.mlp.shared_expert.up_proj.weight"},
       {kSharedDown, "model.layers.#.mlp.shared_expert.down_proj.weight"}});
}();

/// 1 marks the layers with a window; a model's files say its width (Family::windows).
constexpr auto kSunkExperts = [] {
  LayerConfig windowed{.qkv_bias = true, .other_biases = true, .sinks = true, .experts = true};
  const LayerConfig full = windowed;
  windowed.window = 1;
  return std::array{windowed, full};
}();

constexpr auto kGptOssNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kRouter, "model.layers.#.mlp.router.weight"},
       {kRouterBias, "model.layers.#.mlp.router.bias"},
       {kExpertDownBias, "model.layers.#.mlp.experts.down_proj_bias"}});
}();
constexpr std::array kExpertsByTurns{
    FusedRows{"model.layers.#.mlp.experts.gate_up_proj",
              "",
              {TensorRole::kExpertGate, TensorRole::kExpertUp},
              true},
    FusedRows{"model.layers.#.mlp.experts.gate_up_proj_bias",
              "",
              {TensorRole::kExpertGateBias, TensorRole::kExpertUpBias},
              true},
    FusedRows{"model.layers.#.mlp.experts.down_proj", "", {TensorRole::kExpertDown}, true}};

constexpr std::array kNormedBiasedExperts{
    LayerConfig{.qkv_bias = true, .qk_norm = true, .experts = true}};

constexpr std::array kBiased{LayerConfig{.qkv_bias = true, .other_biases = true}};

constexpr DecoderForm kOptForm{.norm = NormKind::kLayer,
                               .positions = PositionKind::kLearned,
                               .mlp = MlpKind::kRelu,
                               .position_offset = 2};
constexpr auto kOptNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kEmbedding, "model.decoder.embed_tokens.weight"},
       {kProjectIn, "model.decoder.project_in.weight"},
       {kPositions, "model.decoder.embed_positions.weight"},
       {kAttentionNorm, "model.decoder.layers.#.self_attn_layer_norm.weight"},
       {kAttentionNormBias, "model.decoder.layers.#.self_attn_layer_norm.bias"},
       {kQuery, "model.decoder.layers.#.self_attn.q_proj.weight"},
       {kKey, "model.decoder.layers.#.self_attn.k_proj.weight"},
       {kValue, "model.decoder.layers.#.self_attn.v_proj.weight"},
       {kQueryBias, "model.decoder.layers.#.self_attn.q_proj.bias"},
       {kKeyBias, "model.decoder.layers.#.self_attn.k_proj.bias"},
       {kValueBias, "model.decoder.layers.#.self_attn.v_proj.bias"},
       {kOutput, "model.decoder.layers.#.self_attn.out_proj.weight"},
       {kOutputBias, "model.decoder.layers.#.self_attn.out_proj.bias"},
       {kMlpNorm, "model.decoder.layers.#.final_layer_norm.weight"},
       {kMlpNormBias, "model.decoder.layers.#.final_layer_norm.bias"},
       {kUp, "model.decoder.layers.#.fc1.weight"},
       {kUpBias, "model.decoder.layers.#.fc1.bias"},
       {kDown, "model.decoder.layers.#.fc2.weight"},
       {kDownBias, "model.decoder.layers.#.fc2.bias"},
       {kFinalNorm, "model.decoder.final_layer_norm.weight"},
       {kFinalNormBias, "model.decoder.final_layer_norm.bias"},
       {kProjectOut, "model.decoder.project_out.weight"}});
}();

constexpr DecoderForm kBloomForm{.norm = NormKind::kLayer,
                                 .positions = PositionKind::kAlibi,
                                 .mlp = MlpKind::kGeluTanh,
                                 .embedding_norm = true,
                                 .fused_qkv = true};
constexpr auto kBloomNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kEmbedding, "transformer.word_embeddings.weight"},
       {kEmbeddingNorm, "transformer.word_embeddings_layernorm.weight"},
       {kEmbeddingNormBias, "transformer.word_embeddings_layernorm.bias"},
       {kAttentionNorm, "transformer.h.#.input_layernorm.weight"},
       {kAttentionNormBias, "transformer.h.#.input_layernorm.bias"},
       {kFusedQkv, "transformer.h.#.self_attention.query_key_value.weight"},
       {kFusedQkvBias, "transformer.h.#.self_attention.query_key_value.bias"},
       {kOutput, "transformer.h.#.self_attention.dense.weight"},
       {kOutputBias, "transformer.h.#.self_attention.dense.bias"},
       {kMlpNorm, "transformer.h.#.post_attention_layernorm.weight"},
       {kMlpNormBias, "transformer.h.#.post_attention_layernorm.bias"},
       {kUp, "transformer.h.#.mlp.dense_h_to_4h.weight"},
       {kUpBias, "transformer.h.#.mlp.dense_h_to_4h.bias"},
       {kDown, "transformer.h.#.mlp.dense_4h_to_h.weight"},
       {kDownBias, "transformer.h.#.mlp.dense_4h_to_h.bias"},
       {kFinalNorm, "transformer.ln_f.weight"},
       {kFinalNormBias, "transformer.ln_f.bias"}});
}();

/// Names of Gemma 2, 3 and 4, whose files call what the attention gives by Llama's name for what
/// the MLP reads.
constexpr auto kGemmaNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kAttentionResultNorm, "model.layers.#.post_attention_layernorm.weight"},
       {kMlpNorm, "model.layers.#.pre_feedforward_layernorm.weight"},
       {kMlpResultNorm, "model.layers.#.post_feedforward_layernorm.weight"}});
}();
constexpr DecoderForm kGemmaForm{.mlp = MlpKind::kGeglu, .norm_results = true};
constexpr std::array kWindowedAndFull{LayerConfig{.window = 1}, LayerConfig{}};
constexpr std::array kNormedWindowedAndFull{LayerConfig{.qk_norm = true, .window = 1},
                                            LayerConfig{.qk_norm = true}};

constexpr DecoderForm kGemma4Form{
    .mlp = MlpKind::kGeglu, .norm_results = true, .layer_scale = true};
constexpr std::array kGemma4Layers{LayerConfig{.qk_norm = true, .value_norm = true, .window = 1},
                                   LayerConfig{.qk_norm = true, .value_norm = true}};

constexpr std::array kFusedQkvAndGateUp{
    FusedRows{"model.layers.#.self_attn.qkv_proj.weight",
              "blk.#.attn_qkv.weight",
              {TensorRole::kQuery, TensorRole::kKey, TensorRole::kValue}},
    FusedRows{"model.layers.#.mlp.gate_up_proj.weight",
              "blk.#.ffn_up.weight",
              {TensorRole::kGate, TensorRole::kUp}}};
constexpr std::array kFusedGateUp{kFusedQkvAndGateUp[1]};

constexpr auto kResultNormNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kAttentionResultNorm, "model.layers.#.post_attention_layernorm.weight"},
       {kMlpResultNorm, "model.layers.#.post_feedforward_layernorm.weight"}});
}();
constexpr auto kGlm4Names = [] {
  using enum TensorRole;
  return std::to_array<StoredName>(
      {{kAttentionResultNorm, "model.layers.#.post_self_attn_layernorm.weight"},
       {kMlpResultNorm, "model.layers.#.post_mlp_layernorm.weight"}});
}();
constexpr auto kExaoneNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>({{kEmbedding, "transformer.wte.weight"},
                                    {kAttentionNorm, "transformer.h.#.ln_1.weight"},
                                    {kQuery, "transformer.h.#.attn.attention.q_proj.weight"},
                                    {kKey, "transformer.h.#.attn.attention.k_proj.weight"},
                                    {kValue, "transformer.h.#.attn.attention.v_proj.weight"},
                                    {kOutput, "transformer.h.#.attn.attention.out_proj.weight"},
                                    {kMlpNorm, "transformer.h.#.ln_2.weight"},
                                    {kGate, "transformer.h.#.mlp.c_fc_0.weight"},
                                    {kUp, "transformer.h.#.mlp.c_fc_1.weight"},
                                    {kDown, "transformer.h.#.mlp.c_proj.weight"},
                                    {kFinalNorm, "transformer.ln_f.weight"}});
}();

constexpr DecoderForm kNormRotatedForm{.norm_rotated = true};
constexpr auto kHunyuanNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>({{kQueryNorm, "model.layers.#.self_attn.query_layernorm.weight"},
                                    {kKeyNorm, "model.layers.#.self_attn.key_layernorm.weight"}});
}();

constexpr DecoderForm kXieluForm{.mlp = MlpKind::kXielu};
constexpr auto kApertusNames = [] {
  using enum TensorRole;
  return std::to_array<StoredName>({{kAttentionNorm, "model.layers.#.attention_layernorm.weight"},
                                    {kMlpNorm, "model.layers.#.feedforward_layernorm.weight"}});
}();

constexpr std::array kGraniteHybridNames{
    StoredName{TensorRole::kDown, "model.layers.#.shared_mlp.output_linear.weight"}};
constexpr std::array kGraniteHybridGateUp{FusedRows{
    "model.layers.#.shared_mlp.input_linear.weight", "", {TensorRole::kGate, TensorRole::kUp}}};

constexpr DecoderForm kNormedResultsForm{.norm_results = true};
constexpr DecoderForm kOnlyResultsNormedForm{.norm_inputs = false, .norm_results = true};
constexpr std::array kWholeNormedQk{LayerConfig{.qk_norm = true, .whole_qk_norm = true}};
constexpr std::array kWholeNormedWindowedAndFull{
    LayerConfig{.qk_norm = true, .whole_qk_norm = true, .window = 1},
    LayerConfig{.qk_norm = true, .whole_qk_norm = true}};
constexpr std::array kRotatedAndNot{LayerConfig{}, LayerConfig{.rotated = false}};
constexpr std::array kWindowedAndFullUnrotated{LayerConfig{.window = 1},
                                               LayerConfig{.rotated = false}};
constexpr std::array kNormedWindowedAndFullUnrotated{
    LayerConfig{.qk_norm = true, .window = 1}, LayerConfig{.qk_norm = true, .rotated = false}};

constexpr DecoderForm kCohereForm{.norm = NormKind::kLayer, .norm_bias = false, .parallel = true};
/// Kinds of layers of the larger models.
constexpr std::array kEachHeadNormed{LayerConfig{.qk_norm = true, .each_head_norm = true}};
constexpr DecoderForm kSquaredReluForm{.mlp = MlpKind::kReluSquared};
constexpr DecoderForm kNemotronForm{.norm = NormKind::kLayer, .mlp = MlpKind::kReluSquared};
constexpr DecoderForm kStarcoder2Form{.norm = NormKind::kLayer, .mlp = MlpKind::kGeluTanh};
constexpr auto kStarcoder2Names = [] {
  using enum TensorRole;
  return std::to_array<StoredName>({{kUp, "model.layers.#.mlp.c_fc.weight"},
                                    {kUpBias, "model.layers.#.mlp.c_fc.bias"},
                                    {kDown, "model.layers.#.mlp.c_proj.weight"},
                                    {kDownBias, "model.layers.#.mlp.c_proj.bias"}});
}();

/// Keys of config.json that these families' readers read.
constexpr std::array<std::string_view, 3> kGemma2Keys{
    "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"};
constexpr std::array<std::string_view, 3> kGemma3Keys{
    "final_logit_softcapping", "query_pre_attn_scalar", "rope_local_base_freq"};
constexpr std::array<std::string_view, 2> kGemma4Keys{"final_logit_softcapping",
                                                      "use_bidirectional_attention"};
constexpr std::array<std::string_view, 4> kGraniteKeys{
    "embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier"};
constexpr std::array<std::string_view, 1> kCohereKeys{"logit_scale"};
constexpr std::array<std::string_view, 1> kSmolLm3Keys{"no_rope_layers"};

}  // namespace canopy
