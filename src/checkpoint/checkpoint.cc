#include "src/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/formats/half.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/families/wrapper.h"
#include "src/checkpoint/fingerprint.h"
#include "src/checkpoint/header_reader.h"
#include "src/checkpoint/model_tensors.h"
#include "src/checkpoint/quantized/fp8_tensors.h"
#include "src/checkpoint/quantized/integer_tensors.h"
#include "src/checkpoint/quantized/mxfp4_tensors.h"
#include "src/checkpoint/quantized/nvfp4_tensors.h"
#include "src/checkpoint/quantized/product_factors.h"
#include "src/checkpoint/quantized/quantization.h"
#include "src/checkpoint/quantized/table_tensors.h"
#include "src/checkpoint/readers.h"

namespace canopy {

std::uint64_t parameters(const Checkpoint& model) {
  std::uint64_t all = 0;
  for (const TensorEntry& tensor : model.tensors()) {
    std::uint64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= static_cast<std::uint64_t>(extent);
    all += elements;
  }
  return all;
}

namespace {

/// True if anything has this name. Paths too long or out of reach count as absent: opening them
/// reports why.
bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// "Qwen/Qwen2.5-7B": two names, and none of them one of a file.
bool is_hub_id(const std::filesystem::path& model) {
  return model.is_relative() && std::distance(model.begin(), model.end()) == 2 &&
         model.has_filename() && *model.begin() != "." && *model.begin() != ".." &&
         model.extension() != ".gguf" && model.extension() != ".safetensors";
}

/// Says if a tensor is of a layer after the last, which the config says is left out.
bool is_of_draft_layer(std::string_view name, const ModelConfig& config) {
  if (name.starts_with("model.mtp_") || name.starts_with("mtp."))  // of Ernie and Qwen3.5
    return config.draft_layers > 0;
  for (const std::string_view prefix : {"model.layers.", "blk."}) {
    if (!name.starts_with(prefix)) continue;
    int layer = -1;
    const char *const first = name.data() + prefix.size(), *const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(first, end, layer);
    return error == std::errc() && rest != end && *rest == '.' && layer >= config.layers &&
           layer - config.layers < config.draft_layers;
  }
  return false;
}

/// Holds the tensors found against those the config asks for.
class Inventory {
 public:
  explicit Inventory(std::vector<TensorEntry> tensors) : tensors_(std::move(tensors)) {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
    used_.resize(tensors_.size());
  }

  void need(const std::string& name, TensorKind kind, const std::vector<std::int64_t>& shape) {
    const auto at =
        std::lower_bound(tensors_.begin(), tensors_.end(), name,
                         [](const TensorEntry& t, const auto& n) { return t.name < n; });
    if (at == tensors_.end() || at->name != name)
      throw Error("tensor " + in_quotes(name) + " " + to_string(shape) + " is missing");
    require_known_dtype(*at);
    if (at->shape != shape)
      throw Error("tensor " + in_quotes(name) + " has shape " + to_string(at->shape) +
                  ", but the config asks for " + to_string(shape));
    const bool plain =
        at->dtype == DType::kF32 || at->dtype == DType::kF16 || at->dtype == DType::kBF16;
    if (!plain && kind != TensorKind::kMatrix)
      throw Error("tensor " + in_quotes(name) + " has dtype " + canopy::name(at->dtype) +
                  "; norms and biases must be F32, F16 or BF16");
    const std::uint64_t bytes =
        in_context("checking tensor " + in_quotes(name), [&] { return tensor_bytes(*at); });
    if (bytes != at->bytes)
      throw Error("tensor " + in_quotes(name) + " has " + std::to_string(at->bytes) +
                  " bytes, but its shape " + to_string(shape) + " of " + dtype_name(*at) +
                  " needs " + std::to_string(bytes));
    used_[static_cast<std::size_t>(at - tensors_.begin())] = true;
  }

  /// The tensors that were asked for. Throws Error on any other that might be part of the function.
  std::vector<TensorEntry> take(ModelConfig& config) && {
    bool drafts = false;
    std::vector<TensorEntry> result;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      TensorEntry& tensor = tensors_[i];
      if (used_[i]) {
        result.push_back(std::move(tensor));
        continue;
      }
      // Tables that old exporters stored, and a tied model's head that equals its embedding.
      const bool harmless =
          tensor.name.ends_with("rotary_emb.inv_freq") || tensor.name == "rope_freqs.weight" ||
          (!config.rope_long_frequency.empty() && tensor.name.starts_with("rope_factors_")) ||
          (config.tied_head && tensor.name == tensor_name(TensorRole::kHead));
      // Numbers that the config has, too, and copies of a directory need.
      if (!config.xielu.empty() && is_of_xielu(tensor.name)) {
        result.push_back(std::move(tensor));
        continue;
      }
      const bool of_draft = is_of_draft_layer(tensor.name, config);
      drafts = drafts || of_draft;
      if (!harmless && !of_draft)
        throw Error("tensor " + in_quotes(tensor.name) + " is not part of a " +
                    config.architecture + " model of " + std::to_string(config.layers) +
                    " layers with this config: the model may compute something else");
    }
    if (drafts)
      add_note(config.notes, "layers after number " + std::to_string(config.layers - 1) +
                                 ", which guess further tokens, are left out");
    return result;
  }

 private:
  std::vector<TensorEntry> tensors_;  // by name
  std::vector<bool> used_;
};

std::vector<TensorEntry> take_inventory(ModelConfig& config, std::vector<TensorEntry> tensors) {
  Inventory inventory(std::move(tensors));
  for_each_tensor(config, [&](const ModelTensor& tensor) {
    inventory.need(tensor.name(), tensor.spec->kind, tensor.shape(config));
  });
  return std::move(inventory).take(config);
}

/// The few values of a tensor that is no part of a layer; empty if the model has none.
std::vector<float> read_factors(const GgufModel& model, std::string_view called) {
  constexpr std::uint64_t kMostBytes = 64 << 10;
  for (const TensorEntry& tensor : model.header.tensors) {
    if (tensor.name != called) continue;
    if (tensor.dtype != DType::kF32 || tensor.shape.size() != 1 || tensor.bytes > kMostBytes)
      throw Error("tensor " + in_quotes(called) + " must be a short F32 vector, not " +
                  std::string(name(tensor.dtype)) + " " + to_string(tensor.shape));
    HeaderReader reader(model.files[static_cast<std::size_t>(tensor.file)],
                        tensor.offset + tensor.bytes);
    reader.skip_to(tensor.offset);
    std::vector<float> factors(static_cast<std::size_t>(tensor.shape[0]));
    reader.read(factors.data(), tensor.bytes);
    return factors;
  }
  return {};
}

RopeFactors read_rope_factors(const GgufModel& model) {
  return {read_factors(model, "rope_freqs.weight"),
          read_factors(model, "rope_factors_short.weight"),
          read_factors(model, "rope_factors_long.weight")};
}

/// The matrix of one expert in a tensor of those of all [experts, rows, columns].
TensorEntry expert_of(const TensorEntry& all, std::int64_t expert) {
  TensorEntry stacked = all;
  stacked.shape = {all.shape[0] * all.shape[1], all.shape[2]};
  TensorEntry own = rows_of(stacked, expert * all.shape[1], all.shape[1]);
  if (!own.factors.empty()) own.factors = {all.factors.at(static_cast<std::size_t>(expert))};
  return own;
}

/// The tensors of a GGUF file, with the experts that it has in one tensor [experts, rows, columns]
/// as tensors of their own, under their canonical names.
std::vector<TensorEntry> apart(const Family& family, const ModelConfig& config,
                               std::vector<TensorEntry> stored) {
  std::vector<TensorEntry> all;
  for (TensorEntry& tensor : stored) {
    const auto found = find_stacked_experts(family, tensor.name);
    if (!found) {
      all.push_back(std::move(tensor));
      continue;
    }
    if (tensor.shape.size() != 3 || tensor.shape[0] != config.experts.count)
      throw Error("tensor " + in_quotes(tensor.name) + " has shape " + to_string(tensor.shape) +
                  ", not [experts, rows, columns] of " + std::to_string(config.experts.count) +
                  " experts");
    for (int expert = 0; expert < config.experts.count; ++expert) {
      all.push_back(expert_of(tensor, expert));
      all.back().name = tensor_name(found->spec->role, found->layer, expert);
    }
  }
  return all;
}

/// Takes a tensor of all experts of a layer apart where the rows of several matrices take turns.
std::vector<TensorEntry> take_turns(const FusedRows& fused, const ModelConfig& config, int layer,
                                    const TensorEntry& tensor) {
  const TensorSpec& spec = spec_of(*fused.parts.front());
  const std::int64_t turns =
      std::count_if(fused.parts.begin(), fused.parts.end(), [](const auto& p) { return p; });
  const int experts = config.sizes(layer).experts;
  std::vector<std::int64_t> wanted{experts};
  if (spec.of_experts()) wanted.push_back(turns * length(spec.rows, config, layer));
  wanted.push_back((spec.of_experts() ? 1 : turns) * length(spec.columns, config, layer));
  if (spec.of_experts() && !tensor.parts)
    throw Error("tensor " + in_quotes(tensor.name) + " is " + dtype_name(tensor) +
                ", in which stacked experts lie by columns: take the model in MXFP4, or as a GGUF "
                "file");
  if (tensor.shape != wanted)
    throw Error("tensor " + in_quotes(tensor.name) + " has shape " + to_string(tensor.shape) +
                ", but the config asks for " + to_string(wanted));
  std::vector<TensorEntry> all;
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const TensorRole role = *fused.parts[static_cast<std::size_t>(turn)];
    if (!spec.of_experts()) {
      all.push_back(values_of_turn(tensor, turn, turns));
      all.back().name = tensor_name(role, layer);
    }
    for (int expert = 0; expert < experts && spec.of_experts(); ++expert) {
      all.push_back(rows_of_turn(expert_of(tensor, expert), turn, turns));
      all.back().name = tensor_name(role, layer, expert);
    }
  }
  return all;
}

/// Takes tensors apart that hold the rows of several matrices of a layer. `pattern`: what the
/// container calls them. Other tensors stay; names are then canonical, but of those.
void split_fused(const Family& family, const ModelConfig& config,
                 std::string_view FusedRows::*pattern, std::vector<TensorEntry>& tensors) {
  std::vector<TensorEntry> all;
  for (TensorEntry& tensor : tensors) {
    const auto fused = std::find_if(
        family.fused.begin(), family.fused.end(),
        [&](const FusedRows& each) { return numbers_in(each.*pattern, tensor.name).has_value(); });
    if (fused == family.fused.end()) {
      all.push_back(std::move(tensor));
      continue;
    }
    const int layer = std::stoi(std::string(numbers_in((*fused).*pattern, tensor.name)->layer));
    if (layer >= config.layers) {
      all.push_back(std::move(tensor));  // which is no part of the model
      continue;
    }
    require_known_dtype(tensor);
    if (fused->by_turns) {
      for (TensorEntry& part : take_turns(*fused, config, layer, tensor))
        all.push_back(std::move(part));
      continue;
    }
    std::vector<std::int64_t> shape(1);
    for (const std::optional<TensorRole> part : fused->parts)
      if (part) shape[0] += length(spec_of(*part).rows, config, layer);
    shape.push_back(length(spec_of(*fused->parts.front()).columns, config, layer));
    const bool of_experts = spec_of(*fused->parts.front()).of_experts();
    const int experts = of_experts ? config.sizes(layer).experts : 1;
    std::vector<std::int64_t> wanted = shape;
    if (of_experts) wanted.insert(wanted.begin(), experts);
    if (tensor.shape != wanted)
      throw Error("tensor " + in_quotes(tensor.name) + " has shape " + to_string(tensor.shape) +
                  ", but the config asks for " + to_string(wanted));
    for (int expert = 0; expert < experts; ++expert) {
      TensorEntry own = of_experts ? expert_of(tensor, expert) : tensor;
      std::int64_t first = 0;
      for (const std::optional<TensorRole> part : fused->parts) {
        if (!part) continue;
        const std::int64_t rows = length(spec_of(*part).rows, config, layer);
        all.push_back(rows_of(own, first, rows));
        all.back().name = tensor_name(*part, layer, of_experts ? expert : -1);
        first += rows;
      }
    }
  }
  tensors = std::move(all);
}

/// Sets what is added to norms as they are read, of a family whose directories have them less 1.
void add_ones(const Family& family, std::vector<TensorEntry>& tensors) {
  if (!family.norms_less_one) return;
  for (TensorEntry& tensor : tensors)
    if (const auto known = find_tensor(tensor.name); known &&
                                                     known->spec->kind == TensorKind::kNorm &&
                                                     known->spec->role != TensorRole::kDeltaNorm)
      tensor.plus = 1.0f;
}

/// Rounds the factor of a scaled embedding to the type of its weights, as transformers does.
void round_embedding_factor(const Family& family, const std::vector<TensorEntry>& tensors,
                            ModelConfig& config) {
  if (!family.scaled_embedding) return;
  const auto at = std::find_if(tensors.begin(), tensors.end(), [](const TensorEntry& tensor) {
    return tensor.name == tensor_name(TensorRole::kEmbedding);
  });
  if (at == tensors.end()) return;
  float& factor = config.factors.embedding;
  if (at->dtype == DType::kF16)
    factor = f32_from_f16(f16_from_f32(factor));
  else if (at->dtype != DType::kF32)  // what is packed was BF16
    factor = f32_from_bf16(bf16_from_f32(factor));
}

Checkpoint open_gguf(const std::filesystem::path& file, std::span<const Family> families,
                     Holes holes) {
  GgufModel model = read_gguf_model(file, holes);
  GgufHeader& header = model.header;
  ModelConfig config = in_context("reading " + file.string(), [&] {
    return gguf_config(header, read_rope_factors(model), families);
  });
  auto tensors = in_context("checking the tensors of " + file.string(), [&] {
    const Family& family = *find_family(families, config.architecture);
    take_product_factors(model.files, header.tensors, config);
    split_fused(family, config, &FusedRows::gguf, header.tensors);
    std::vector<TensorEntry> each = apart(family, config, std::move(header.tensors));
    for (TensorEntry& tensor : each) {
      if (!find_tensor(tensor.name)) tensor.name = canonical_gguf_name(family, tensor.name);
      if (tensor.shape.size() != 1) continue;
      // A matrix of one row is a vector there.
      const auto known = find_tensor(tensor.name);
      if (known && known->spec->rows == Length::kSharedScore)
        tensor.shape.insert(tensor.shape.begin(), 1);
    }
    return take_inventory(config, std::move(each));
  });
  if (holes == Holes::kRefused) note_zero_matrices(model.files, tensors, config);
  return {file, std::move(model.files), std::move(tensors), std::move(config),
          std::move(header.metadata)};
}

/// Throws Error if tensors do not lie by rows.
void refuse_parts(const std::filesystem::path& directory, const std::vector<TensorEntry>& tensors,
                  const ModelConfig& config) {
  if (std::ranges::none_of(tensors, [](const auto& t) { return t.parts != nullptr; })) return;
  throw Error(directory.string() + " has weights that do not lie by rows (" + config.quantization +
              "): write them so once, with the same values, by `canopy pack -m " +
              directory.string() +
              " -o DIR`, and take DIR as the model; --repack DIR of generate, chat and serve does "
              "both");
}

Checkpoint open_directory(const std::filesystem::path& directory, std::span<const Family> families,
                          Holes holes, Rows rows) {
  const auto config_file = directory / "config.json";
  if (!is_there(config_file))
    throw Error(directory.string() +
                " has no config.json; a model is a Hugging Face directory or a GGUF file");
  const nlohmann::json whole = read_json(config_file, kMostConfigBytes, FileKind::kOfModel);
  nlohmann::json json =
      in_context("reading " + config_file.string(), [&] { return text_config(whole); });
  // End tokens are those that transformers' generate() stops at, where the two differ.
  const auto generation_file = directory / "generation_config.json";
  nlohmann::json generation;
  if (is_there(generation_file))
    generation = read_json(generation_file, kMostConfigBytes, FileKind::kOfModel);
  const bool generation_ends = generation.is_object() && generation.contains("eos_token_id");
  if (json.is_object() && generation_ends) json.erase("eos_token_id");
  ModelConfig config =
      in_context("reading " + config_file.string(), [&] { return hf_config(json, families); });
  if (generation_ends)
    in_context("reading " + generation_file.string(), [&] {
      json["eos_token_id"] = generation["eos_token_id"];
      put_end_tokens(json["eos_token_id"], generation_file.filename().string(), config);
    });
  Quantization scheme = quantization_of(json);
  if (const auto file = directory / "hf_quant_config.json"; is_there(file))
    in_context("reading " + directory.string(), [&] {
      add_quantization_file(read_json(file, kMostConfigBytes, FileKind::kOfModel), scheme);
    });
  TensorIndex index = read_safetensors(directory, holes);
  if (is_wrapped(whole)) unwrap_tensors(whole, index, config);
  const Family* const family = find_family(families, config.architecture);
  require(family != nullptr, "the reader of a family's config.json leaves the family's name");
  if (scheme.fp8)  // a copy's config lacks the wrapper, but the list has its names
    for (std::string& module : scheme.fp8->left_out) module = unwrapped_name(module);
  in_context("reading the scales of " + directory.string(), [&] {
    if (scheme.integers)
      join_integer_tensors(index, *scheme.integers, config);
    else if (scheme.nvfp4)
      join_nvfp4_tensors(index, *scheme.nvfp4, config);
    else if (scheme.tables)
      join_table_tensors(index, config);
    else if (scheme.mxfp4)
      join_mxfp4_tensors(index, config);
    else
      join_fp8_tensors(index, scheme.fp8, *family, config);
  });
  in_context("checking the tensors of " + directory.string(), [&] {
    read_xielu(index, config);
    split_fused(*family, config, &FusedRows::name, index.tensors);
  });
  for (TensorEntry& tensor : index.tensors) {
    tensor.name = canonical_name(*family, tensor.name);
    const auto known = find_tensor(tensor.name);  // Ernie's biases are rows of a matrix
    if (known && known->spec->role == TensorRole::kChoiceBias && tensor.shape.size() == 2 &&
        tensor.shape.front() == 1)
      tensor.shape.erase(tensor.shape.begin());
    // Convolutions have one input channel for each of theirs.
    if (known && known->spec->role == TensorRole::kDeltaTaps && tensor.shape.size() == 3 &&
        tensor.shape[1] == 1)
      tensor.shape.erase(tensor.shape.begin() + 1);
  }
  add_ones(*family, index.tensors);
  round_embedding_factor(*family, index.tensors, config);
  untie_stored_head(index, config);
  auto tensors = in_context("checking the tensors of " + directory.string(),
                            [&] { return take_inventory(config, std::move(index.tensors)); });
  if (rows == Rows::kThere) refuse_parts(directory, tensors, config);
  if (holes == Holes::kRefused) note_zero_matrices(index.files, tensors, config);
  Metadata metadata = flatten_config(json);
  if (!index.source.empty()) metadata.set(std::string(kSourceFingerprint), index.source);
  return {directory, std::move(index.files), std::move(tensors), std::move(config),
          std::move(metadata)};
}

}  // namespace

Checkpoint::Checkpoint(std::filesystem::path root, std::vector<std::filesystem::path> files,
                       std::vector<TensorEntry> tensors, ModelConfig config, Metadata metadata)
    : root_(std::move(root)),
      files_(std::move(files)),
      tensors_(std::move(tensors)),
      config_(std::move(config)),
      metadata_(std::move(metadata)) {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
}

const TensorEntry* Checkpoint::find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorEntry& tensor, std::string_view n) { return tensor.name < n; });
  return at == tensors_.end() || at->name != name ? nullptr : &*at;
}

Checkpoint Checkpoint::open(const std::filesystem::path& model, Holes holes, Rows rows) {
  return open(model, known_families(), holes, rows);
}

namespace {

Checkpoint open_files(const std::filesystem::path& model, std::span<const Family> families,
                      Holes holes, Rows rows) {
  std::error_code error;
  if (std::filesystem::is_directory(model, error))
    return open_directory(model, families, holes, rows);
  if (model.extension() == ".safetensors")
    throw Error(model.string() + " alone lacks a config; give the directory that holds it");
  if (std::filesystem::status(model, error).type() == std::filesystem::file_type::not_found)
    throw Error("there is no model " + model.string() +
                (is_hub_id(model)
                     ? ": to take it from the Hugging Face Hub, give -hf " + model.string() +
                           " in place of -m, or download it first: canopy pull " + model.string()
                     : ": a model is a Hugging Face directory or a GGUF file"));
  return open_gguf(model, families, holes);
}

}  // namespace

Checkpoint Checkpoint::open(const std::filesystem::path& model, std::span<const Family> families,
                            Holes holes, Rows rows) {
  std::optional<ShardLabel> label = read_shard_label(model);
  if (label && holes != Holes::kOfShard)
    throw Error(model.string() + " has " + in_words(*label) +
                " alone: mpirun starts the ranks that share the model (docs/cluster.md); all else "
                "needs the whole model");
  if (holes == Holes::kOfShard) holes = label ? Holes::kAllowed : Holes::kRefused;
  Checkpoint opened = open_files(model, families, holes, rows);
  opened.shard_ = std::move(label);
  return opened;
}

std::filesystem::path largest_file(const std::vector<std::filesystem::path>& files) {
  const auto size = [](const auto& file) { return std::filesystem::file_size(file); };
  return *std::max_element(files.begin(), files.end(),
                           [&](const auto& a, const auto& b) { return size(a) < size(b); });
}

}  // namespace canopy
