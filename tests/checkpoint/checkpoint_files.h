#pragma once
// Writes tiny checkpoints of random weights: Hugging Face directories and GGUF files of every
// family, whole or with one byte wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/tensor.h"
#include "src/base/error.h"
#include "src/base/formats/block_scales.h"
#include "src/base/formats/half.h"
#include "tests/error_of.h"
#include "tests/temp_dir.h"

namespace canopy::testing {

inline void write_file(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw Error("cannot write " + file.string());
}

inline std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct FileTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::string bytes;
  std::string stored_dtype = {};  // in safetensors, where that is not the name of `dtype`
};

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// A tensor of normal values with this mean and deviation, rounded to `dtype`. A quantised one has
/// random blocks of about that deviation.
inline FileTensor random_tensor(std::string name, DType dtype, std::vector<std::int64_t> shape,
                                std::mt19937_64& random, float mean, float deviation) {
  FileTensor tensor{std::move(name), dtype, std::move(shape), {}};
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= extent;
  std::normal_distribution<float> normal;  // whose own deviation may not be 0
  switch (dtype) {
    case DType::kF32:
      while (count-- > 0) append(tensor.bytes, mean + deviation * normal(random));
      break;
    case DType::kF16:
      while (count-- > 0) append(tensor.bytes, f16_from_f32(mean + deviation * normal(random)));
      break;
    case DType::kBF16:
      while (count-- > 0) append(tensor.bytes, bf16_from_f32(mean + deviation * normal(random)));
      break;
    default:
      visit_format(BlockFormats(), dtype, [&]<class Format>(Format) {
        for (; count > 0; count -= Format::kBlockElements)
          for (int i = 0; i < Format::kBlockBytes; ++i)
            tensor.bytes.push_back(static_cast<char>(random() & 0xff));
        const auto bytes = std::as_writable_bytes(std::span(tensor.bytes));
        const BlockScales scales = random_scales<Format>(bytes, static_cast<double>(deviation));
        for (std::size_t at = 0; at < bytes.size(); at += Format::kBlockBytes)
          put_scales<Format>(scales, &bytes[at]);
      });
  }
  return tensor;
}

/// A safetensors file: tensors in the order given, `padding` spaces after the header so that data
/// may begin at any byte.
inline std::string safetensors_bytes(const std::vector<FileTensor>& tensors,
                                     std::size_t padding = 0) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const FileTensor& tensor : tensors) {
    const std::size_t begin = data.size();
    data += tensor.bytes;
    const std::string dtype =
        tensor.stored_dtype.empty() ? name(tensor.dtype) : tensor.stored_dtype;
    header[tensor.name] = {
        {"dtype", dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump() + std::string(padding, ' ');
  std::string file;
  append<std::uint64_t>(file, text.size());
  return file + text + data;
}

/// Safetensors bytes around a header written by hand.
inline std::string safetensors_with_header(std::string_view header, std::size_t data_bytes) {
  std::string file;
  append<std::uint64_t>(file, header.size());
  return file.append(header).append(data_bytes, '\0');
}

/// Builds a GGUF file key by key and tensor by tensor; what it writes is right unless a test sets a
/// member otherwise.
class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  // written as general.alignment unless 32
  std::string magic = "GGUF";

  void u32(std::string_view key, std::uint32_t value) { start(key, 4), append(keys_, value); }
  void i32(std::string_view key, std::int32_t value) { start(key, 5), append(keys_, value); }
  void f32(std::string_view key, float value) { start(key, 6), append(keys_, value); }
  void u64(std::string_view key, std::uint64_t value) { start(key, 10), append(keys_, value); }
  void boolean(std::string_view key, std::uint8_t value) { start(key, 7), append(keys_, value); }
  void text(std::string_view key, std::string_view value) { start(key, 8), string(keys_, value); }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    start_array(key, 8, values.size());
    for (const std::string& value : values) string(keys_, value);
  }
  template <class T>  // type: GGUF's number for T
  void numbers(std::string_view key, std::uint32_t type, const std::vector<T>& values) {
    start_array(key, type, values.size());
    for (const T value : values) append(keys_, value);
  }
  /// A value of any type and bytes, right or wrong.
  void raw(std::string_view key, std::uint32_t type, std::string_view bytes) {
    start(key, type), keys_.append(bytes);
  }

  void tensor(const FileTensor& tensor) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    info(tensor.name, {tensor.shape.rbegin(), tensor.shape.rend()}, ggml_type(tensor.dtype),
         data_.size());
    data_ += tensor.bytes;
  }
  /// A tensor info of any content, without data. `extents`: innermost first.
  void info(std::string_view name, const std::vector<std::int64_t>& extents, std::uint32_t type,
            std::uint64_t offset) {
    ++tensor_count;
    string(infos_, name);
    append(infos_, static_cast<std::uint32_t>(extents.size()));
    for (const std::int64_t extent : extents) append(infos_, extent);
    append(infos_, type);
    append(infos_, offset);
  }
  std::uint64_t tensor_count = 0, key_count = 0;

  std::string header() const {
    GgufWriter copy = *this;
    if (alignment != 32) copy.u32("general.alignment", static_cast<std::uint32_t>(alignment));
    std::string out = magic;
    append(out, version);
    append(out, tensor_count);
    append(out, copy.key_count);
    return out + copy.keys_ + infos_;
  }
  std::string bytes() const {
    std::string out = header();
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  static std::uint32_t ggml_type(DType dtype) {
    const WeightFormat* const format = find_format(dtype);
    if (format == nullptr) throw Error("no ggml type in this writer");
    return format->gguf_id;
  }
  static void string(std::string& out, std::string_view text) {
    append<std::uint64_t>(out, text.size());
    out += text;
  }
  void start(std::string_view key, std::uint32_t type) {
    ++key_count;
    string(keys_, key);
    append(keys_, type);
  }
  void start_array(std::string_view key, std::uint32_t type, std::uint64_t count) {
    start(key, 9);
    append(keys_, type);
    append(keys_, count);
  }

  std::string keys_, infos_, data_;
};

/// A model as a Hugging Face config and canonically named tensors.
struct TinyModel {
  nlohmann::json config;
  std::vector<FileTensor> tensors;

  FileTensor& at(std::string_view name) {
    for (FileTensor& tensor : tensors)
      if (tensor.name == name) return tensor;
    throw Error("no tensor " + std::string(name));
  }
};

struct TinyOptions {
  std::string family = "llama";  // "mistral", "qwen2", "qwen3"
  int layers = 2, dim = 64, hidden_dim = 96, heads = 4, kv_heads = 2, head_dim = 16, vocab = 96;
  bool tied = false;
  DType matrices = DType::kBF16;  // a quantised dtype needs rows of whole blocks, and GGUF
  std::uint64_t seed = 1;
};

/// Weights of deviation 1/sqrt(columns), norms about 1: activations stay of order one.
inline TinyModel tiny_model(const TinyOptions& o = {}) {
  std::mt19937_64 random(o.seed);
  const std::string class_name = o.family == "llama"     ? "Llama"
                                 : o.family == "mistral" ? "Mistral"
                                 : o.family == "qwen2"   ? "Qwen2"
                                                         : "Qwen3";
  TinyModel model;
  model.config = {{"architectures", {class_name + "ForCausalLM"}},
                  {"model_type", o.family},
                  {"hidden_act", "silu"},
                  {"hidden_size", o.dim},
                  {"intermediate_size", o.hidden_dim},
                  {"num_hidden_layers", o.layers},
                  {"num_attention_heads", o.heads},
                  {"num_key_value_heads", o.kv_heads},
                  {"head_dim", o.head_dim},
                  {"vocab_size", o.vocab},
                  {"max_position_embeddings", 128},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 10000.0},
                  {"tie_word_embeddings", o.tied},
                  {"torch_dtype", "bfloat16"},
                  {"eos_token_id", 2}};
  if (o.family == "mistral") model.config["sliding_window"] = nullptr;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    model.tensors.push_back(random_tensor(name, o.matrices, {rows, columns}, random, 0.0f,
                                          1.0f / std::sqrt(static_cast<float>(columns))));
  };
  const auto vector = [&](const std::string& name, std::int64_t size, float mean) {
    const bool quantised = o.matrices != DType::kBF16 && o.matrices != DType::kF16;
    model.tensors.push_back(
        random_tensor(name, quantised ? DType::kF32 : o.matrices, {size}, random, mean, 0.1f));
  };
  const int q = o.heads * o.head_dim, kv = o.kv_heads * o.head_dim;
  matrix("model.embed_tokens.weight", o.vocab, o.dim);
  for (int layer = 0; layer < o.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    vector(at + "input_layernorm.weight", o.dim, 1);
    matrix(at + "self_attn.q_proj.weight", q, o.dim);
    matrix(at + "self_attn.k_proj.weight", kv, o.dim);
    matrix(at + "self_attn.v_proj.weight", kv, o.dim);
    if (o.family == "qwen2") {
      vector(at + "self_attn.q_proj.bias", q, 0);
      vector(at + "self_attn.k_proj.bias", kv, 0);
      vector(at + "self_attn.v_proj.bias", kv, 0);
    }
    if (o.family == "qwen3") {
      vector(at + "self_attn.q_norm.weight", o.head_dim, 1);
      vector(at + "self_attn.k_norm.weight", o.head_dim, 1);
    }
    matrix(at + "self_attn.o_proj.weight", o.dim, q);
    vector(at + "post_attention_layernorm.weight", o.dim, 1);
    matrix(at + "mlp.gate_proj.weight", o.hidden_dim, o.dim);
    matrix(at + "mlp.up_proj.weight", o.hidden_dim, o.dim);
    matrix(at + "mlp.down_proj.weight", o.dim, o.hidden_dim);
  }
  vector("model.norm.weight", o.dim, 1);
  if (!o.tied) matrix("lm_head.weight", o.vocab, o.dim);
  return model;
}

/// Writes config.json and the weights: model.safetensors, or `shards` files and their index.
inline void write_hugging_face(const std::filesystem::path& directory, const TinyModel& model,
                               std::size_t shards = 1, std::size_t padding = 0) {
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", model.config.dump(2));
  if (shards == 1) {
    write_file(directory / "model.safetensors", safetensors_bytes(model.tensors, padding));
    return;
  }
  std::vector<std::vector<FileTensor>> parts(shards);
  nlohmann::json index = {{"metadata", {{"total_size", 0}}}};
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const std::size_t shard = i * shards / model.tensors.size();
    parts[shard].push_back(model.tensors[i]);
    index["weight_map"][model.tensors[i].name] = "model-" + std::to_string(shard) + ".safetensors";
  }
  for (std::size_t shard = 0; shard < shards; ++shard)
    write_file(directory / ("model-" + std::to_string(shard) + ".safetensors"),
               safetensors_bytes(parts[shard], padding));
  write_file(directory / "model.safetensors.index.json", index.dump());
}

/// The GGUF name of a canonical one, as converters write it.
inline std::string gguf_name(std::string_view canonical) {
  static const std::vector<std::pair<std::string, std::string>> kPieces{
      {"model.embed_tokens.", "token_embd."},
      {"model.norm.", "output_norm."},
      {"lm_head.", "output."},
      {"model.layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  std::string name(canonical);
  for (const auto& [from, to] : kPieces)
    if (const auto at = name.find(from); at != name.npos) name.replace(at, from.size(), to);
  return name;
}

/// Rows of one head reordered from halves (0, 1, .. | n/2, n/2+1, ..) to neighbours (0, n/2, 1,
/// ..), as converters do for Q and K of llama models.
inline FileTensor interleave_heads(FileTensor tensor, std::int64_t head_dim) {
  const std::size_t row = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
  const std::string original = tensor.bytes;
  for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
    const std::int64_t head = i / head_dim, in_head = i % head_dim;
    const std::int64_t from = head * head_dim + in_head % 2 * (head_dim / 2) + in_head / 2;
    std::memcpy(&tensor.bytes[static_cast<std::size_t>(i) * row],
                &original[static_cast<std::size_t>(from) * row], row);
  }
  return tensor;
}

/// The model as a converter writes it to GGUF: vectors in F32, matrices as they are; llama and
/// mistral both become architecture "llama" with interleaved heads. Rotary scaling is not carried
/// over.
inline GgufWriter gguf_writer(
    const TinyModel& model, const std::function<std::string(const std::string&)>& name_of =
                                [](const std::string& canonical) { return gguf_name(canonical); }) {
  const auto& c = model.config;
  const std::string family = c["model_type"];
  const std::string arch = family == "mistral" ? "llama" : family;
  GgufWriter out;
  out.text("general.architecture", arch);
  const auto u32 = [&](const char* key, const char* from) {
    out.u32(arch + "." + key, c[from].get<std::uint32_t>());
  };
  u32("block_count", "num_hidden_layers");
  u32("context_length", "max_position_embeddings");
  u32("embedding_length", "hidden_size");
  u32("feed_forward_length", "intermediate_size");
  u32("attention.head_count", "num_attention_heads");
  u32("attention.head_count_kv", "num_key_value_heads");
  u32("attention.key_length", "head_dim");
  u32("attention.value_length", "head_dim");
  u32("rope.dimension_count", "head_dim");
  u32("vocab_size", "vocab_size");
  out.f32(arch + ".attention.layer_norm_rms_epsilon", c["rms_norm_eps"].get<float>());
  out.f32(arch + ".rope.freq_base", c["rope_theta"].get<float>());
  out.u32("tokenizer.ggml.eos_token_id", c["eos_token_id"].get<std::uint32_t>());
  for (FileTensor tensor : model.tensors) {
    if (arch == "llama" &&
        (tensor.name.ends_with("q_proj.weight") || tensor.name.ends_with("k_proj.weight")))
      tensor = interleave_heads(tensor, c["head_dim"].get<std::int64_t>());
    if (tensor.shape.size() == 1 && (tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16)) {
      std::string wide;
      std::vector<float> row(static_cast<std::size_t>(tensor.shape[0]));
      for (std::size_t i = 0; i < row.size(); ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, &tensor.bytes[2 * i], 2);
        append(wide, tensor.dtype == DType::kBF16 ? f32_from_bf16(bits) : f32_from_f16(bits));
      }
      tensor.dtype = DType::kF32;
      tensor.bytes = wide;
    }
    tensor.name = name_of(tensor.name);
    out.tensor(tensor);
  }
  return out;
}

/// Returns success if an error's message contains `words`; "" is no error at all.
inline ::testing::AssertionResult mentions(const std::string& message, std::string_view words) {
  if (message.empty()) return ::testing::AssertionFailure() << "no Error was thrown";
  if (message.find(words) != message.npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << words << "' is not in: " << message;
}

}  // namespace canopy::testing
