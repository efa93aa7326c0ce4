#pragma once
// Tiny checkpoints whose layers' matrices are FP8, in every form that files have, and the same
// models with these weights in F32.
#include <algorithm>
#include <limits>

#include "src/base/formats/fp8_format.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace canopy::testing {

enum class Fp8Scales { kTensor, kRows, kBlocks };

struct Fp8Form {
  const char* name;
  Fp8Scales scales = Fp8Scales::kBlocks;
  const char* scale_dtype = "F32";  // "BF16", "F16", "F8_E8M0", "U8"
  const char* scale_name = "weight_scale_inv";
  const char* activation_name = "";  // of a scale of activations, if there is one
  bool compressed_tensors = false;
};
inline void PrintTo(const Fp8Form& form, std::ostream* out) { *out << form.name; }
inline const std::vector<Fp8Form> kFp8Forms{
    {"blocks"},
    {.name = "bf16", .scale_dtype = "BF16"},
    {.name = "e8m0", .scale_dtype = "F8_E8M0"},
    {.name = "u8", .scale_dtype = "U8"},
    {.name = "tensor", .scales = Fp8Scales::kTensor, .activation_name = "activation_scale"},
    {.name = "older",
     .scales = Fp8Scales::kTensor,
     .scale_name = "weight_scale",
     .activation_name = "input_scale"},
    {.name = "mistral",
     .scales = Fp8Scales::kTensor,
     .scale_name = "qscale_weight",
     .activation_name = "qscale_act"},
    {.name = "channel",
     .scales = Fp8Scales::kRows,
     .scale_dtype = "BF16",
     .scale_name = "weight_scale",
     .compressed_tensors = true},
    {.name = "compressed_blocks",
     .scale_dtype = "F16",
     .scale_name = "weight_scale",
     .compressed_tensors = true},
    {.name = "compressed_tensor",
     .scales = Fp8Scales::kTensor,
     .scale_name = "weight_scale",
     .activation_name = "input_scale",
     .compressed_tensors = true}};

/// The smallest scale of the type that is not less than this.
inline std::string stored_scale(const std::string& type, float least, float& scale) {
  std::string bytes;
  if (type == "F32") {
    append(bytes, scale = least);
  } else if (type == "BF16") {
    std::uint16_t bits = bf16_from_f32(least);
    if (f32_from_bf16(bits) < least) ++bits;
    scale = f32_from_bf16(bits), append(bytes, bits);
  } else if (type == "F16") {
    std::uint16_t bits = f16_from_f32(least);
    if (f32_from_f16(bits) < least) ++bits;
    scale = f32_from_f16(bits), append(bytes, bits);
  } else {
    const int exponent = static_cast<int>(std::ceil(std::log2(least)));
    scale = std::ldexp(1.0f, exponent), append(bytes, static_cast<std::uint8_t>(exponent + 127));
  }
  return bytes;
}

inline std::uint8_t nearest_e4m3(float value) {
  std::uint8_t best = 0;
  float miss = std::numeric_limits<float>::infinity();
  for (std::uint8_t code = 0; code < format::kE4M3NaN; ++code)
    if (const float d = std::abs(format::f32_from_e4m3(code) - std::abs(value)); d < miss)
      best = code, miss = d;
  return static_cast<std::uint8_t>(best | (value < 0 ? 0x80 : 0));
}

/// A matrix of F32 as FP8 with its scales, appended to `out`; it becomes what they stand for.
inline void append_fp8(FileTensor& matrix, const Fp8Form& form, std::vector<FileTensor>& out) {
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  std::memcpy(values.data(), matrix.bytes.data(), matrix.bytes.size());
  FileTensor codes{matrix.name, DType::kU8, matrix.shape, std::string(values.size(), '\0'),
                   "F8_E4M3"};
  const std::string module = matrix.name.substr(0, matrix.name.size() - 6);
  FileTensor scales{module + form.scale_name, DType::kU8, {}, {}, form.scale_dtype};
  const std::int64_t high = form.scales == Fp8Scales::kTensor ? rows
                            : form.scales == Fp8Scales::kRows ? 1
                                                              : 128,
                     wide = form.scales == Fp8Scales::kBlocks ? 128 : columns;
  for (std::int64_t i0 = 0; i0 < rows; i0 += high)
    for (std::int64_t k0 = 0; k0 < columns; k0 += wide) {
      const auto each = [&](const auto& body) {
        for (std::int64_t i = i0; i < std::min(rows, i0 + high); ++i)
          for (std::int64_t k = k0; k < std::min(columns, k0 + wide); ++k)
            body(static_cast<std::size_t>(i * columns + k));
      };
      float most = 0, scale = 0;
      each([&](std::size_t at) { most = std::max(most, std::abs(values[at])); });
      scales.bytes += stored_scale(form.scale_dtype, most / format::kLargestE4M3, scale);
      each([&](std::size_t at) {
        const std::uint8_t code = nearest_e4m3(values[at] / scale);
        codes.bytes[at] = static_cast<char>(code);
        values[at] = format::f32_from_e4m3(code) * scale;
      });
    }
  if (form.scales == Fp8Scales::kRows) scales.shape = {rows, 1};
  if (form.scales == Fp8Scales::kBlocks) scales.shape = {(rows + 127) / 128, (columns + 127) / 128};
  if (form.compressed_tensors && form.scales == Fp8Scales::kTensor) scales.shape = {1};
  std::memcpy(matrix.bytes.data(), values.data(), matrix.bytes.size());
  out.push_back(std::move(codes));
  out.push_back(std::move(scales));
  if (*form.activation_name == '\0') return;
  FileTensor unused{module + form.activation_name, DType::kF32, {}, {}};
  append(unused.bytes, 0.5f);
  out.push_back(std::move(unused));
}

inline nlohmann::json fp8_config(const Fp8Form& form) {
  if (!form.compressed_tensors) {
    nlohmann::json config{{"quant_method", "fp8"},
                          {"activation_scheme", "dynamic"},
                          {"modules_to_not_convert", {"lm_head"}}};
    if (form.scales == Fp8Scales::kBlocks)
      config["weight_block_size"] = {128, 128};
    else
      config["weight_block_size"] = nullptr;
    return config;
  }
  const char* const strategy = form.scales == Fp8Scales::kTensor ? "tensor"
                               : form.scales == Fp8Scales::kRows ? "channel"
                                                                 : "block";
  nlohmann::json weights{
      {"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", strategy}};
  if (form.scales == Fp8Scales::kBlocks) weights["block_structure"] = {128, 128};
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"kv_cache_scheme", nullptr},
          {"ignore", {"lm_head"}},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

/// A model whose layers are FP8, and the same with the weights in F32. No matrix of it is whole
/// blocks of 128 x 128.
struct Fp8Models {
  TinyModel fp8, plain;
};
inline Fp8Models fp8_models(const Fp8Form& form, TinyOptions options = {}, int dim = 160,
                            int hidden_dim = 200) {
  options.dim = dim, options.hidden_dim = hidden_dim, options.heads = 10, options.kv_heads = 5;
  options.matrices = DType::kF32;
  Fp8Models models;
  models.plain = tiny_model(options);
  models.fp8.config = models.plain.config;
  models.fp8.config["quantization_config"] = fp8_config(form);
  for (FileTensor& tensor : models.plain.tensors)
    if (tensor.shape.size() == 2 && tensor.name.starts_with("model.layers."))
      append_fp8(tensor, form, models.fp8.tensors);
    else
      models.fp8.tensors.push_back(tensor);
  return models;
}

}  // namespace canopy::testing
