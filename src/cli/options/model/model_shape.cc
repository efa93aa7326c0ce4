#include "src/cli/options/model/model_shape.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "src/base/error.h"
#include "src/cli/options/values.h"

namespace canopy::cli {

namespace {

struct NamedShape {
  const char *name, *config;
};
constexpr std::array kShapes{
    NamedShape{"llama-2-7b",
               R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32,
    "vocab_size": 32000, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})"},
    NamedShape{"llama-2-70b",
               R"({"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
    "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 32000, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})"},
    NamedShape{"llama-3.2-1b",
               R"({"model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048,
    "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8,
    "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000,
    "max_position_embeddings": 131072, "tie_word_embeddings": true})"},
    NamedShape{"llama-3.1-8b",
               R"({"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000,
    "max_position_embeddings": 131072})"},
    NamedShape{"llama-3.1-70b",
               R"({"model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192,
    "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
    "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000,
    "max_position_embeddings": 131072})"},
    // Numbers of Qwen's config.json files; the same in the scripts of github.com/THUDM/slime
    // (624b824). All layers of the mixtures have experts; Qwen3-Next alone has a shared one.
    NamedShape{"qwen3-0.6b",
               R"({"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024,
    "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "max_position_embeddings": 40960, "tie_word_embeddings": true})"},
    NamedShape{"qwen3-32b",
               R"({"model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120,
    "intermediate_size": 25600, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "max_position_embeddings": 40960})"},
    NamedShape{"qwen3-30b-a3b",
               R"({"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048,
    "intermediate_size": 6144, "num_attention_heads": 32, "num_key_value_heads": 4,
    "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
    "norm_topk_prob": true, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "max_position_embeddings": 40960})"},
    NamedShape{"qwen3-235b-a22b",
               R"({"model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096,
    "intermediate_size": 12288, "num_attention_heads": 64, "num_key_value_heads": 4,
    "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 1536,
    "norm_topk_prob": true, "vocab_size": 151936, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
    "max_position_embeddings": 40960})"},
    NamedShape{"qwen3-next-80b-a3b",
               R"({"model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
    "intermediate_size": 5120, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "partial_rotary_factor": 0.25, "full_attention_interval": 4,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
    "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "norm_topk_prob": true, "vocab_size": 151936,
    "rms_norm_eps": 1e-6, "rope_theta": 10000000, "max_position_embeddings": 262144})"},
    // Numbers of the models' config.json files, with what transformers' Gemma3TextConfig has in its
    // place.
    NamedShape{"gemma-3-27b",
               R"({"model_type": "gemma3_text", "num_hidden_layers": 62, "hidden_size": 5376,
    "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 16,
    "head_dim": 128, "query_pre_attn_scalar": 168, "sliding_window": 1024, "vocab_size": 262208,
    "rope_scaling": {"rope_type": "linear", "factor": 8}})"},
    NamedShape{"gemma-4-31b",
               R"({"model_type": "gemma4_text", "num_hidden_layers": 60, "hidden_size": 5376,
    "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 16,
    "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 4,
    "attention_k_eq_v": true, "hidden_size_per_layer_input": 0, "sliding_window": 1024,
    "final_logit_softcapping": 30, "vocab_size": 262144, "max_position_embeddings": 262144})"},
    NamedShape{"apertus-70b",
               R"({"model_type": "apertus", "num_hidden_layers": 80, "hidden_size": 8192,
    "intermediate_size": 43008, "num_attention_heads": 64, "num_key_value_heads": 8,
    "hidden_act": "xielu", "vocab_size": 131072, "max_position_embeddings": 65536})"},
    NamedShape{"phi-4",
               R"({"model_type": "phi3", "num_hidden_layers": 40, "hidden_size": 5120,
    "intermediate_size": 17920, "num_attention_heads": 40, "num_key_value_heads": 10,
    "vocab_size": 100352, "rms_norm_eps": 1e-5, "rope_theta": 250000,
    "max_position_embeddings": 16384})"},
    // transformers' GptOssConfig, and what the models' config.json files have in its place.
    NamedShape{"gpt-oss-20b",
               R"({"model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880,
    "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
    "vocab_size": 201088, "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "yarn",
    "rope_theta": 150000, "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false,
    "original_max_position_embeddings": 4096}, "max_position_embeddings": 131072})"},
    NamedShape{"gpt-oss-120b",
               R"({"model_type": "gpt_oss", "num_hidden_layers": 36, "hidden_size": 2880,
    "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128,
    "vocab_size": 201088, "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "yarn",
    "rope_theta": 150000, "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false,
    "original_max_position_embeddings": 4096}, "max_position_embeddings": 131072})"},
    NamedShape{"smollm2-135m",
               R"({"model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576,
    "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3,
    "vocab_size": 49152, "rms_norm_eps": 1e-5, "rope_theta": 100000,
    "max_position_embeddings": 8192, "tie_word_embeddings": true})"},
    NamedShape{"smollm2-1.7b",
               R"({"model_type": "llama", "num_hidden_layers": 24, "hidden_size": 2048,
    "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 32,
    "vocab_size": 49152, "rms_norm_eps": 1e-5, "rope_theta": 130000,
    "max_position_embeddings": 8192, "tie_word_embeddings": true})"}};
constexpr std::array kTypes{
    std::pair{":q8_0", DType::kQ8_0},   std::pair{":q4_0", DType::kQ4_0},
    std::pair{":q4_1", DType::kQ4_1},   std::pair{":packed", DType::kPackedBF16},
    std::pair{":q4_k", DType::kQ4_K},   std::pair{":q6_k", DType::kQ6_K},
    std::pair{":mxfp4", DType::kMXFP4}, std::pair{":levels", DType::kLevelsBF16}};

class NoTokenizer final : public Tokenizer {
 public:
  explicit NoTokenizer(int vocab) : vocab_(vocab) {}
  std::vector<TokenId> encode(std::string_view, AddSpecial, const std::stop_token&) const override {
    return {};
  }
  std::vector<TokenId> encode_marked(std::string_view, std::string_view,
                                     const std::stop_token&) const override {
    return {};
  }
  std::string quote_specials(std::string_view, std::string_view) const override { return ""; }
  std::string decode(std::span<const TokenId>, AddSpecial) const override { return ""; }
  std::string_view piece(TokenId) const override { return ""; }
  std::string_view token_string(TokenId) const override { return ""; }
  bool is_special(TokenId) const override { return false; }
  bool ends_text(TokenId) const override { return false; }
  int vocab() const override { return vocab_; }

 private:
  int vocab_;
};

std::pair<std::string, DType> split(const std::string& text) {
  for (const auto& [ending, type] : kTypes)
    if (text.ends_with(ending))
      return {text.substr(0, text.size() - std::string_view(ending).size()), type};
  return {text, DType::kBF16};
}

ModelConfig config_of(const std::string& name) {
  for (const NamedShape& known : kShapes)
    if (name == known.name) return shape_from_config(known.config);
  try {
    return shape_from_config(read_text(name, kMostConfigBytes));
  } catch (const Error& e) {
    throw Error(name + ": " + e.what());
  }
}

}  // namespace

RandomModel parse_model_shape(const std::string& text) {
  const auto [name, type] = split(text);
  return {config_of(name), type};
}

bool names_model_shape(const std::string& text) {
  const std::string name = split(text).first;
  const auto known = [&](const NamedShape& shape) { return name == shape.name; };
  return name.ends_with(".json") ||
         (std::any_of(kShapes.begin(), kShapes.end(), known) && !std::filesystem::exists(text));
}

std::string shape_names() {
  std::string names;
  for (const NamedShape& shape : kShapes)
    names.append(names.empty() ? "" : ", ").append(shape.name);
  return names;
}

void require_same_vocabulary(const ModelConfig& target, const ModelConfig& draft) {
  if (target.vocab != draft.vocab)
    throw Error("the shapes have vocabularies of " + std::to_string(target.vocab) + " and " +
                std::to_string(draft.vocab) + ": no draft for this target");
}

std::unique_ptr<Tokenizer> no_tokenizer(int vocab) { return std::make_unique<NoTokenizer>(vocab); }

}  // namespace canopy::cli
