#pragma once
// Private to the checkpoint readers: what Checkpoint::open() is made of.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/families.h"
#include "src/checkpoint/sparse/holes.h"

namespace canopy {

class Keys;  // of gguf_keys.h

/// The tensors of a checkpoint's containers. Every extent lies inside its file, has the size that
/// its dtype and shape ask for, and shares no byte with another; no name occurs twice.
struct TensorIndex {
  std::vector<std::filesystem::path> files;
  std::vector<TensorEntry> tensors;
  std::string source = {};  // of a packed model: source_fingerprint()
};

/// A Hugging Face directory's model.safetensors, or else the shards that
/// model.safetensors.index.json names. Reads headers only. Throws Error naming file and tensor.
TensorIndex read_safetensors(const std::filesystem::path& directory, Holes holes = Holes::kRefused);

/// One such file, whatever it is called.
TensorIndex read_safetensors_file(const std::filesystem::path& file, Holes holes = Holes::kRefused);

/// A GGUF header (version 2 or 3), tensors under the names GGUF gives them and shapes reversed into
/// row-major order. Throws Error naming the file and the key or tensor.
struct GgufHeader {
  Metadata metadata;
  std::vector<TensorEntry> tensors;
};
GgufHeader read_gguf(const std::filesystem::path& file, Holes holes = Holes::kRefused);

/// A GGUF file, or the parts that its first one counts, each tensor with the index of its file.
/// Throws Error naming the part that is missing, does not belong there or is not the first.
struct GgufModel {
  GgufHeader header;  // the keys of the first part, the tensors of all
  std::vector<std::filesystem::path> files;
};
GgufModel read_gguf_model(const std::filesystem::path& file, Holes holes = Holes::kRefused);

/// Factors of rotary frequencies that GGUF files have as tensors, a value for each pair; those of a
/// tensor that is not there are empty.
struct RopeFactors {
  std::vector<float> all;  // rope_freqs.weight
  std::vector<float> short_texts,
      long_texts;  // rope_factors_short.weight, rope_factors_long.weight
};

/// The config of a GGUF file from its metadata and tensor shapes. Throws Error naming the key or
/// the tensor.
ModelConfig gguf_config(const GgufHeader& header, const RopeFactors& factors,
                        std::span<const Family> families = known_families());

/// Sets the delta net of a GGUF file, and which layers attend. Throws Error naming the key.
void put_delta(const Keys& keys, const GgufHeader& header, const Family& family,
               ModelConfig& model);

/// The config of a Hugging Face model from config.json. Throws Error naming the key and what to do;
/// what the decoder class cannot express is refused here.
ModelConfig hf_config(const nlohmann::json& config,
                      std::span<const Family> families = known_families());
/// These read configs that say more than read_decoder_config() reads.
ModelConfig read_llama_config(const nlohmann::json& config, const Family& family);
ModelConfig read_mistral_config(const nlohmann::json& config, const Family& family);
ModelConfig read_ministral3_config(const nlohmann::json& config, const Family& family);
ModelConfig read_qwen_config(const nlohmann::json& config, const Family& family);
ModelConfig read_qwen3_config(const nlohmann::json& config, const Family& family);
ModelConfig read_qwen3_5_config(const nlohmann::json& config, const Family& family);
ModelConfig read_qwen3_5_moe_config(const nlohmann::json& config, const Family& family);
ModelConfig read_qwen3_next_config(const nlohmann::json& config, const Family& family);
ModelConfig read_seed_oss_config(const nlohmann::json& config, const Family& family);
ModelConfig read_phi3_config(const nlohmann::json& config, const Family& family);
ModelConfig read_gemma2_config(const nlohmann::json& config, const Family& family);
ModelConfig read_gemma3_config(const nlohmann::json& config, const Family& family);
ModelConfig read_gemma4_config(const nlohmann::json& config, const Family& family);
ModelConfig read_olmo2_config(const nlohmann::json& config, const Family& family);
ModelConfig read_olmo3_config(const nlohmann::json& config, const Family& family);
ModelConfig read_exaone4_config(const nlohmann::json& config, const Family& family);
ModelConfig read_exaone_config(const nlohmann::json& config, const Family& family);
ModelConfig read_hunyuan_config(const nlohmann::json& config, const Family& family);
ModelConfig read_apertus_config(const nlohmann::json& config, const Family& family);
ModelConfig read_granitemoehybrid_config(const nlohmann::json& config, const Family& family);
ModelConfig read_glm4_config(const nlohmann::json& config, const Family& family);
ModelConfig read_granite_config(const nlohmann::json& config, const Family& family);
ModelConfig read_smollm3_config(const nlohmann::json& config, const Family& family);
ModelConfig read_cohere_config(const nlohmann::json& config, const Family& family);
ModelConfig read_cohere2_config(const nlohmann::json& config, const Family& family);
ModelConfig read_arcee_config(const nlohmann::json& config, const Family& family);
ModelConfig read_nemotron_config(const nlohmann::json& config, const Family& family);
ModelConfig read_starcoder2_config(const nlohmann::json& config, const Family& family);
ModelConfig read_mixtral_config(const nlohmann::json& config, const Family& family);
ModelConfig read_qwen3_moe_config(const nlohmann::json& config, const Family& family);
ModelConfig read_qwen2_moe_config(const nlohmann::json& config, const Family& family);
ModelConfig read_glm4_moe_config(const nlohmann::json& config, const Family& family);
ModelConfig read_minimax_m2_config(const nlohmann::json& config, const Family& family);
ModelConfig read_dots1_config(const nlohmann::json& config, const Family& family);
ModelConfig read_granitemoe_config(const nlohmann::json& config, const Family& family);
ModelConfig read_ernie4_5_moe_config(const nlohmann::json& config, const Family& family);
ModelConfig read_gpt_oss_config(const nlohmann::json& config, const Family& family);
ModelConfig read_olmoe_config(const nlohmann::json& config, const Family& family);
ModelConfig read_opt_config(const nlohmann::json& config, const Family& family);
ModelConfig read_bloom_config(const nlohmann::json& config, const Family& family);
/// Sets the model's end tokens to the ids of an eos_token_id, of that file. Ids beyond the
/// vocabulary are ignored, with a note in the config. Throws Error on what is no integer.
void put_end_tokens(const nlohmann::json& ids, const std::string& file, ModelConfig& model);
/// config.json flattened with dots; null, empty and mixed arrays are left out.
Metadata flatten_config(const nlohmann::json& config);

/// Reads the numbers of xIELU of each layer from a GGUF file's metadata, or those of all. Throws
/// Error naming the key.
void put_xielu(const Metadata& metadata, ModelConfig& model);
/// Reads the numbers of xIELU from the tensors of a directory, of a model that has it. Throws Error
/// naming the tensor.
void read_xielu(const TensorIndex& index, ModelConfig& config);
/// Says if a tensor is one of these numbers.
bool is_of_xielu(std::string_view tensor);
/// Throws Error naming the layer whose numbers of xIELU make no function.
void require_xielu(const ModelConfig& config);

/// Unties the head of a model whose files hold another than the embedding, with a note in the
/// config; one that is equal stays spare. Names are canonical. Both are read whole where they are
/// equal: the user's cache keeps that by the identity of their files. Throws Error where they
/// cannot be read.
void untie_stored_head(const TensorIndex& index, ModelConfig& config);

/// Throws Error if the tensor's dtype is foreign.
void require_known_dtype(const TensorEntry& tensor);

/// Notes in the config the matrices that are zeros at 64 places: what a hole becomes where a file
/// was copied. An inflated model has some on purpose.
void note_zero_matrices(const std::vector<std::filesystem::path>& files,
                        const std::vector<TensorEntry>& tensors, ModelConfig& config);

/// Throws Error if two tensors have one name or share a byte of a file. A tensor without bytes may
/// sit between others, not inside one. Sorts by place.
void require_disjoint(std::vector<TensorEntry>& tensors);

}  // namespace canopy
