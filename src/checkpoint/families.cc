#include "src/checkpoint/families.h"

#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

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

/// The window's width is a placeholder: see Family::windows.
constexpr auto kSunkExperts = [] {
  LayerConfig windowed{.qkv_bias = true, .other_biases = true, .sinks = true, .experts = true};
  const LayerConfig full = windowed;
  windowed.window = 1;
  return std::array{windowed, full};
}();

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

constexpr std::array kFamilies{
    Family{.name = "llama",
           .hf_class = "LlamaForCausalLM",
           .gguf = "llama",
           .gguf_adjacent_pairs = true,
           .gguf_frequency_factors = true,
           .read_config = read_llama_config},
    Family{.name = "mistral",
           .hf_class = "MistralForCausalLM",
           .gguf = "llama",
           .gguf_adjacent_pairs = true,
           .gguf_frequency_factors = true,
           .read_config = read_mistral_config},
    Family{.name = "ministral3",
           .hf_class = "Ministral3ForCausalLM",
           .gguf = "mistral3",
           .gguf_adjacent_pairs = true,
           .scaled_queries = true,
           .read_config = read_ministral3_config},
    Family{.name = "qwen2",
           .hf_class = "Qwen2ForCausalLM",
           .gguf = "qwen2",
           .layer_kinds = kBiasedQkv,
           .read_config = read_qwen_config},
    Family{.name = "qwen3",
           .hf_class = "Qwen3ForCausalLM",
           .gguf = "qwen3",
           .layer_kinds = kNormedQk,
           .read_config = read_qwen3_config},
    Family{.name = "seed_oss",
           .hf_class = "SeedOssForCausalLM",
           .gguf = "seed_oss",
           .layer_kinds = kBiasedQkv,
           .own_attention_bias = true,
           .read_config = read_seed_oss_config,
           .gguf_names = kPostAttentionNorm},
    Family{.name = "mixtral",
           .hf_class = "MixtralForCausalLM",
           .gguf = "llama",
           .layer_kinds = kExperts,
           .gguf_adjacent_pairs = true,
           .gguf_frequency_factors = true,
           .mixture = true,
           .read_config = read_mixtral_config,
           .stored_names = kMixtralNames},
    Family{.name = "qwen3_moe",
           .hf_class = "Qwen3MoeForCausalLM",
           .gguf = "qwen3moe",
           .layer_kinds = kNormedQkExperts,
           .mixture = true,
           .read_config = read_qwen3_moe_config},
    Family{.name = "olmoe",
           .hf_class = "OlmoeForCausalLM",
           .gguf = "olmoe",
           .layer_kinds = kWholeNormedQkExperts,
           .mixture = true,
           .gguf_normalised_experts = false,
           .read_config = read_olmoe_config},
    Family{.name = "qwen2_moe",
           .hf_class = "Qwen2MoeForCausalLM",
           .gguf = "qwen2moe",
           .layer_kinds = kBiasedQkvExperts,
           .mixture = true,
           .shared_experts = true,
           .shared_switch = true,
           .gguf_normalised_experts = false,
           .gguf_lacks_parts = true,
           .read_config = read_qwen2_moe_config,
           .stored_names = kQwen2MoeNames},
    Family{.name = "glm4_moe",
           .hf_class = "Glm4MoeForCausalLM",
           .gguf = "glm4moe",
           .layer_kinds = kNormedBiasedExperts,
           .mixture = true,
           .shared_experts = true,
           .choice_bias = true,
           .router_score = RouterScore::kSigmoid,
           .gguf_weight_keys = true,
           .leading_dense = true,
           .draft_layers = true,
           .rotated = 0.5,
           .own_attention_bias = true,
           .gguf_normalised_experts = false,
           .gguf_lacks_parts = true,
           .read_config = read_glm4_moe_config,
           .gguf_names = kPostAttentionNorm},
    Family{.name = "dots1",
           .hf_class = "Dots1ForCausalLM",
           .gguf = "dots1",
           .layer_kinds = kNormedQkExperts,
           .mixture = true,
           .shared_experts = true,
           .choice_bias = true,
           .router_score = RouterScore::kSigmoid,
           .gguf_weight_keys = true,
           .leading_dense = true,
           .gguf_normalised_experts = false,
           .read_config = read_dots1_config},
    Family{.name = "minimax_m2",
           .hf_class = "MiniMaxM2ForCausalLM",
           .gguf = "minimax-m2",
           .layer_kinds = kWholeNormedQkExperts,
           .mixture = true,
           .choice_bias = true,
           .router_score = RouterScore::kSigmoid,
           .rotated = 1,
           .read_config = read_minimax_m2_config,
           .stored_names = kMinimaxNames},
    Family{.name = "gpt_oss",
           .hf_class = "GptOssForCausalLM",
           .gguf = "gpt-oss",
           .layer_kinds = kSunkExperts,
           .mixture = true,
           .own_attention_bias = true,
           .windows = true,
           .gating = {GatingKind::kClamped, 7.0f, 1.702f},
           .gguf_truncated_yarn = false,
           .gguf_alone = true,
           .read_config = read_gpt_oss_config,
           .gguf_names = kPostAttentionNorm},
    Family{.name = "opt",
           .hf_class = "OPTForCausalLM",
           .form = kOptForm,
           .layer_kinds = kBiased,
           .read_config = read_opt_config,
           .stored_names = kOptNames,
           .bare_lacks = "model."},
    Family{.name = "bloom",
           .hf_class = "BloomForCausalLM",
           .form = kBloomForm,
           .layer_kinds = kBiased,
           .read_config = read_bloom_config,
           .stored_names = kBloomNames,
           .bare_lacks = "transformer."},
};

}  // namespace

std::span<const Family> known_families() { return kFamilies; }

std::string family_names() {
  std::string names;
  for (std::size_t i = 0; i < kFamilies.size(); ++i)
    names.append(i == 0                      ? ""
                 : i + 1 == kFamilies.size() ? " and "
                                             : ", ")
        .append(kFamilies[i].name);
  return names;
}

const Family* find_family(std::span<const Family> families, std::string_view name) {
  const auto at = std::find_if(families.begin(), families.end(),
                               [&](const Family& family) { return family.name == name; });
  return at == families.end() ? nullptr : &*at;
}

const Family& family_of(const ModelConfig& config) {
  if (const Family* family = find_family(kFamilies, config.architecture)) return *family;
  throw Error("architecture " + in_quotes(config.architecture) + " is none of " + family_names());
}

std::string_view gguf_architecture(const ModelConfig& config) {
  const Family& family = family_of(config);
  if (family.gguf.empty())
    throw Error("a model of architecture " + in_quotes(config.architecture) +
                " cannot be a GGUF file that Canopy reads or writes");
  return family.gguf;
}

std::string canonical_name(const Family& family, std::string_view stored_name) {
  for (const StoredName& stored : family.stored_names)
    for (const std::size_t lacks : {std::size_t{0}, family.bare_lacks.size()})
      if (const auto numbers = numbers_in(stored.name.substr(lacks), stored_name))
        return with_numbers(spec_of(stored.role).name, *numbers);
  return std::string(stored_name);
}

std::string stored_name(const Family& family, std::string_view canonical_name) {
  for (const StoredName& stored : family.stored_names)
    if (const auto numbers = numbers_in(spec_of(stored.role).name, canonical_name))
      return with_numbers(stored.name, *numbers);
  return std::string(canonical_name);
}

namespace {

/// A name that a family's GGUF files give the tensors of a role.
std::string_view gguf_pattern(const Family& family, const TensorSpec& spec) {
  for (const StoredName& own : family.gguf_names)
    if (own.role == spec.role) return own.name;
  return spec.gguf;
}

}  // namespace

std::string canonical_gguf_name(const Family& family, std::string_view gguf_name) {
  for (const TensorSpec& spec : model_tensors())
    if (const auto numbers = numbers_in(gguf_pattern(family, spec), gguf_name);
        numbers && !spec.of_experts())
      return with_numbers(spec.name, *numbers);
  return std::string(gguf_name);
}

std::optional<ModelTensor> find_stacked_experts(const Family& family, std::string_view gguf_name) {
  for (const TensorSpec& spec : model_tensors()) {
    if (!spec.of_experts()) continue;
    const auto numbers = numbers_in(gguf_pattern(family, spec), gguf_name);
    if (numbers) return find_tensor(with_numbers(spec.name, {numbers->layer, "0"}));
  }
  return {};
}

std::string gguf_name(const Family& family, const ModelTensor& tensor) {
  return with_numbers(gguf_pattern(family, *tensor.spec),
                      {tensor.layer < 0 ? "" : std::to_string(tensor.layer), ""});
}

}  // namespace canopy
