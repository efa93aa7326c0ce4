#include "src/checkpoint/families.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/families/delta_families.h"
#include "src/checkpoint/families/tables.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

constexpr Family gemma4(std::string_view name, std::string_view hf_class) {
  return {.name = name,
          .hf_class = hf_class,
          .gguf = "gemma4",
          .form = kGemma4Form,
          .layer_kinds = kGemma4Layers,
          .gguf_frequency_factors = true,
          .windows = true,
          .full_heads = true,
          .period = 6,
          .scaled_embedding = true,
          .score = 1,
          .theta = 1e6,
          .local_theta = 1e4,
          .own_keys = kGemma4Keys,
          .read_config = read_gemma4_config,
          .stored_names = kGemmaNames};
}

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
           .uniform_window = true,
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
    kQwen35,
    kQwen35Moe,
    kQwen3Next,
    Family{.name = "seed_oss",
           .hf_class = "SeedOssForCausalLM",
           .gguf = "seed_oss",
           .layer_kinds = kBiasedQkv,
           .own_attention_bias = true,
           .read_config = read_seed_oss_config,
           .gguf_names = kPostAttentionNorm},
    Family{.name = "phi3",
           .hf_class = "Phi3ForCausalLM",
           .gguf = "phi3",
           .rotated = 1,
           .uniform_window = true,
           .longrope = true,
           .read_config = read_phi3_config,
           .fused = kFusedQkvAndGateUp},
    Family{.name = "gemma2",
           .hf_class = "Gemma2ForCausalLM",
           .gguf = "gemma2",
           .form = kGemmaForm,
           .layer_kinds = kWindowedAndFull,
           .windows = true,
           .period = 2,
           .norms_less_one = true,
           .scaled_embedding = true,
           .usual_logit_cap = 30,
           .usual_score_cap = 50,
           .layers_scaled_by_width = 46,
           .own_keys = kGemma2Keys,
           .read_config = read_gemma2_config,
           .stored_names = kGemmaNames},
    Family{.name = "gemma3_text",
           .hf_class = "Gemma3ForCausalLM",
           .gguf = "gemma3",
           .form = kGemmaForm,
           .layer_kinds = kNormedWindowedAndFull,
           .windows = true,
           .period = 6,
           .norms_less_one = true,
           .scaled_embedding = true,
           .layers_scaled_by_width = 62,
           .theta = 1e6,
           .local_theta = 1e4,
           .own_keys = kGemma3Keys,
           .read_config = read_gemma3_config,
           .stored_names = kGemmaNames},
    gemma4("gemma4_text", "Gemma4ForCausalLM"),
    gemma4("gemma4_unified_text", "Gemma4UnifiedForCausalLM"),
    Family{.name = "olmo2",
           .hf_class = "Olmo2ForCausalLM",
           .gguf = "olmo2",
           .form = kOnlyResultsNormedForm,
           .layer_kinds = kWholeNormedQk,
           .read_config = read_olmo2_config,
           .stored_names = kResultNormNames},
    Family{.name = "olmo3",
           .hf_class = "Olmo3ForCausalLM",
           .gguf = "olmo2",
           .form = kOnlyResultsNormedForm,
           .layer_kinds = kWholeNormedWindowedAndFull,
           .windows = true,
           .period = 4,
           .theta = 500000,
           .local_theta = 500000,
           .read_config = read_olmo3_config,
           .stored_names = kResultNormNames},
    Family{.name = "exaone4",
           .hf_class = "Exaone4ForCausalLM",
           .gguf = "exaone4",
           .form = kOnlyResultsNormedForm,
           .layer_kinds = kNormedWindowedAndFullUnrotated,
           .gguf_frequency_factors = true,
           .windows = true,
           .windows_may_lack = true,
           .period = 4,
           .read_config = read_exaone4_config,
           .stored_names = kResultNormNames},
    Family{.name = "exaone",
           .hf_class = "ExaoneForCausalLM",
           .gguf = "exaone",
           .gguf_frequency_factors = true,
           .theta = 500000,
           .read_config = read_exaone_config,
           .stored_names = kExaoneNames},
    Family{.name = "hunyuan_v1_dense",
           .hf_class = "HunYuanDenseV1ForCausalLM",
           .gguf = "hunyuan-dense",
           .form = kNormRotatedForm,
           .layer_kinds = kNormedQk,
           .read_config = read_hunyuan_config,
           .stored_names = kHunyuanNames},
    Family{.name = "apertus",
           .hf_class = "ApertusForCausalLM",
           .gguf = "apertus",
           .form = kXieluForm,
           .layer_kinds = kNormedQk,
           .gguf_frequency_factors = true,
           .theta = 12000000,
           .read_config = read_apertus_config,
           .stored_names = kApertusNames},
    Family{.name = "glm4",
           .hf_class = "Glm4ForCausalLM",
           .gguf = "glm4",
           .form = kNormedResultsForm,
           .layer_kinds = kBiasedQkv,
           .adjacent_pairs = true,
           .rotated = 0.5,
           .own_attention_bias = true,
           .gguf_lacks_parts = true,
           .read_config = read_glm4_config,
           .stored_names = kGlm4Names,
           .fused = kFusedGateUp},
    Family{.name = "granite",
           .hf_class = "GraniteForCausalLM",
           .gguf = "granite",
           .gguf_adjacent_pairs = true,
           .factors = true,
           .gguf_divides_logits = true,
           .gguf_rotation_switch = true,
           .own_keys = kGraniteKeys,
           .read_config = read_granite_config},
    Family{.name = "granitemoehybrid",
           .hf_class = "GraniteMoeHybridForCausalLM",
           .gguf = "granite",
           .gguf_adjacent_pairs = true,
           .factors = true,
           .gguf_divides_logits = true,
           .gguf_rotation_switch = true,
           .own_keys = kGraniteKeys,
           .read_config = read_granitemoehybrid_config,
           .stored_names = kGraniteHybridNames,
           .fused = kGraniteHybridGateUp},
    Family{.name = "smollm3",
           .hf_class = "SmolLM3ForCausalLM",
           .gguf = "smollm3",
           .layer_kinds = kRotatedAndNot,
           .gguf_adjacent_pairs = true,
           .period = 4,
           .theta = 2000000,
           .own_keys = kSmolLm3Keys,
           .read_config = read_smollm3_config},
    Family{.name = "cohere",
           .hf_class = "CohereForCausalLM",
           .gguf = "command-r",
           .form = kCohereForm,
           .layer_kinds = kEachHeadNormed,
           .adjacent_pairs = true,
           .gguf_lacks_parts = true,
           .factors = true,
           .theta = 500000,
           .own_keys = kCohereKeys,
           .read_config = read_cohere_config},
    Family{.name = "cohere2",
           .hf_class = "Cohere2ForCausalLM",
           .gguf = "cohere2",
           .form = kCohereForm,
           .layer_kinds = kWindowedAndFullUnrotated,
           .adjacent_pairs = true,
           .windows = true,
           .factors = true,
           .period = 4,
           .own_keys = kCohereKeys,
           .read_config = read_cohere2_config},
    Family{.name = "arcee",
           .hf_class = "ArceeForCausalLM",
           .gguf = "arcee",
           .form = kSquaredReluForm,
           .gguf_adjacent_pairs = true,
           .read_config = read_arcee_config},
    Family{.name = "nemotron",
           .hf_class = "NemotronForCausalLM",
           .gguf = "nemotron",
           .form = kNemotronForm,
           .rotated = 0.5,
           .norms_less_one = true,
           .read_config = read_nemotron_config},
    Family{.name = "starcoder2",
           .hf_class = "Starcoder2ForCausalLM",
           .gguf = "starcoder2",
           .form = kStarcoder2Form,
           .layer_kinds = kBiased,
           .uniform_window = true,
           .read_config = read_starcoder2_config,
           .stored_names = kStarcoder2Names},
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
    Family{.name = "granitemoe",
           .hf_class = "GraniteMoeForCausalLM",
           .gguf = "granitemoe",
           .layer_kinds = kExperts,
           .gguf_adjacent_pairs = true,
           .mixture = true,
           .factors = true,
           .gguf_divides_logits = true,
           .own_keys = kGraniteKeys,
           .read_config = read_granitemoe_config,
           .stored_names = kGraniteMoeNames,
           .fused = kStackedExperts},
    Family{.name = "ernie4_5_moe",
           .hf_class = "Ernie4_5_MoeForCausalLM",
           .gguf = "ernie4_5-moe",
           .layer_kinds = kExperts,
           .adjacent_pairs = true,
           .mixture = true,
           .shared_experts = true,
           .choice_bias = true,
           .leading_dense = true,
           .draft_layers = true,
           .theta = 500000,
           .read_config = read_ernie4_5_moe_config,
           .stored_names = kErnieNames},
    Family{.name = "gpt_oss",
           .hf_class = "GptOssForCausalLM",
           .gguf = "gpt-oss",
           .layer_kinds = kSunkExperts,
           .mixture = true,
           .own_attention_bias = true,
           .windows = true,
           .gating = {GatingKind::kClamped, 7.0f, 1.702f},
           .gguf_truncated_yarn = false,
           .read_config = read_gpt_oss_config,
           .stored_names = kGptOssNames,
           .gguf_names = kPostAttentionNorm,
           .fused = kExpertsByTurns},
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

const char* gguf_epsilon_key(const Family& family) {
  return family.form.norm == NormKind::kLayer ? "attention.layer_norm_epsilon"
                                              : "attention.layer_norm_rms_epsilon";
}

float gguf_score_factor(const Family& family, const ModelConfig& config) {
  if (family.score != 0) return family.score;
  const bool by_width = config.layers == family.layers_scaled_by_width;
  return 1.0f /
         std::sqrt(static_cast<float>(by_width ? config.dim / config.heads : config.head_dim));
}

const FusedRows* fused_of(const Family& family, TensorRole role) {
  for (const FusedRows& fused : family.fused)
    if (std::find(fused.parts.begin(), fused.parts.end(), role) != fused.parts.end()) return &fused;
  return nullptr;
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
  for (const StoredName& own : family.gguf_names)  // which may be another family's of another role
    if (const auto numbers = numbers_in(own.name, gguf_name))
      return with_numbers(spec_of(own.role).name, *numbers);
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
