#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/checkpoint/model_config.h"
#include "src/checkpoint/model_tensors.h"

namespace canopy {

struct Family;
/// Reads a family's config.json. Throws Error naming the key and what to do; what the decoder class
/// cannot express is refused here.
using ConfigReader = ModelConfig (*)(const nlohmann::json& config, const Family& family);
/// The reader of a decoder whose config.json has the usual keys. One with others, or with more to
/// say, wraps it.
ModelConfig read_decoder_config(const nlohmann::json& config, const Family& family);

/// A family's own name of a tensor, where it is not the table's. A '#' stands for the
/// number of the layer.
struct StoredName {
  TensorRole role;
  std::string_view name;
};

/// Matrices of a layer whose rows files have in one tensor, one after the other; of experts, in one
/// tensor [experts, rows, columns].
struct FusedRows {
  std::string_view name, gguf;                     // in safetensors, in GGUF; "": apart there
  std::array<std::optional<TensorRole>, 3> parts;  // in their order
  bool by_turns = false;  // a row of each, then the next of each; biases of experts: values
};

inline constexpr std::array kPlainLayers{LayerConfig{}};

/// A family of models as data: with its row here and, where its config.json has something of its
/// own, a reader, it is known to every command.
struct Family {
  std::string_view name;      // model_type of config.json, and ModelConfig::architecture
  std::string_view hf_class;  // in the architectures of config.json
  /// general.architecture; of families that share one, the first is meant. Empty: Canopy knows no
  /// form of it in GGUF.
  std::string_view gguf = {};
  DecoderForm form = {};                                    // as in ModelConfig
  std::span<const LayerConfig> layer_kinds = kPlainLayers;  // they take turns
  bool adjacent_pairs = false;          // in both containers, neighbours are rotated
  bool gguf_adjacent_pairs = false;     // converters reorder the rows of Q and K (docs/formats.md)
  bool gguf_frequency_factors = false;  // GGUF files may have rope_freqs.weight
  bool scaled_queries = false;          // files may scale queries by position
  bool mixture = false;                 // layers have experts
  bool shared_experts = false;          // and one that every row has
  bool shared_switch = false;           // as in ExpertsConfig, as are the next two
  bool choice_bias = false;
  RouterScore router_score = RouterScore::kSoftmax;
  bool gguf_weight_keys = false;  // GGUF files say whether weights are normalised, and their scale
  bool leading_dense = false;     // GGUF files may have layers without experts before all others
  bool draft_layers = false;      // files may have some after the last, as in ModelConfig
  /// The share of each head that is rotated where config.json says none; 0: all, and no file may
  /// say otherwise.
  double rotated = 0;
  bool own_attention_bias = false;      // whose reader reads config.json's attention_bias
  bool gguf_normalised_experts = true;  // whose weights sum to 1 where GGUF files do not say
  /// True if GGUF files may lack biases and norms of Q and K that a table of layers has.
  bool gguf_lacks_parts = false;
  bool windows = false;  // those of the table's layers are as wide as the files say
  /// Layers that see all keys have heads of their own number and size, with keys for values where
  /// files say so or have none.
  bool full_heads = false;
  bool windows_may_lack = false;      // without a width all layers are full, and as the first else
  bool uniform_window = false;        // files may give all layers one
  bool longrope = false;              // files may have it
  bool factors = false;               // files may have them, as in DecoderFactors
  bool gguf_divides_logits = false;   // by the factor of GGUF files
  bool gguf_rotation_switch = false;  // which say whether positions are rotary, or there are none
  /// Every so manieth layer is of the table's second kind, the others of the first; 0: all kinds
  /// take turns.
  int period = 0;
  bool norms_less_one = false;    // directories have the norms' weights less 1
  bool delta = false;             // some layers are delta nets
  bool joined_delta = false;      // whose inputs have one matrix, as in DeltaConfig
  bool scaled_embedding = false;  // by the root of the model's width, rounded to its type
  float usual_logit_cap = 0, usual_score_cap = 0;  // where files do not say; 0: there are none
  /// In GGUF, models of this number of layers have scores divided by the root of dim / heads,
  /// others by that of head_dim; 0: all by that.
  int layers_scaled_by_width = 0;
  float score = 0;         // the factor of scores of all its models; 0: by the size of heads
  double theta = 10000;    // of rotary positions, where files do not say
  double local_theta = 0;  // of layers with windows, which no scaling changes; 0: that of all
  Gating gating = {};      // of experts, where files do not say
  /// In GGUF files, yarn's ramp is bounded by whole pairs; Hugging Face's say whether it is.
  bool gguf_truncated_yarn = true;
  std::span<const std::string_view> own_keys = {};  // that its reader reads, and others refuse
  ConfigReader read_config = read_decoder_config;
  std::span<const StoredName> stored_names = {};  // in safetensors
  std::span<const StoredName> gguf_names = {};    // in GGUF
  std::span<const FusedRows> fused = {};
  std::string_view bare_lacks = {};  // how stored names begin, but for files of the bare decoder
};

/// Returns the families that Canopy runs.
std::span<const Family> known_families();
/// "llama, mistral, qwen2, ... and bloom", for messages.
std::string family_names();
const Family* find_family(std::span<const Family> families, std::string_view name);
/// The known family of a model. Throws Error if it has none.
const Family& family_of(const ModelConfig& config);

/// The general.architecture of a model's GGUF files. Throws Error if Canopy knows none.
std::string_view gguf_architecture(const ModelConfig& config);

/// The key of a family's GGUF files for the epsilon of norms, after the architecture.
const char* gguf_epsilon_key(const Family& family);
/// The factor of scores in a model's GGUF files, which have no key for it, where the family scales
/// its embedding.
float gguf_score_factor(const Family& family, const ModelConfig& config);

/// The tensor that a family's files have a matrix of a layer in, with others; null for most.
const FusedRows* fused_of(const Family& family, TensorRole role);

/// The canonical name of a tensor of a family's safetensors file.
std::string canonical_name(const Family& family, std::string_view stored_name);
/// The other way round.
std::string stored_name(const Family& family, std::string_view canonical_name);

/// Gives the canonical name of a tensor of a family's GGUF file: for "blk.3.attn_q.weight"
/// "model.layers.3.self_attn.q_proj.weight". One that the family does not have comes back
/// unchanged.
std::string canonical_gguf_name(const Family& family, std::string_view gguf_name);
/// The tensor of which a family's GGUF file has those of all experts in one, by its name; its
/// `expert` says nothing. Nothing if the name is that of another.
std::optional<ModelTensor> find_stacked_experts(const Family& family, std::string_view gguf_name);
/// The other way round.
std::string gguf_name(const Family& family, const ModelTensor& tensor);

}  // namespace canopy
