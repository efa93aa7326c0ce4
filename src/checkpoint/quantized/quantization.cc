// Quantised weights, as Hugging Face directories describe them.
#include "src/checkpoint/quantized/quantization.h"

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"
#include "src/checkpoint/readers.h"

namespace canopy {

namespace {

using nlohmann::json;

/// A method of quantisation, and the GGUF type of about its size.
struct Scheme {
  const char *method, *name, *instead;
};
constexpr std::array kSchemes{
    Scheme{"fp8", "FP8", "Q8_0"},
    Scheme{"fbgemm_fp8", "FP8 (FBGEMM)", "Q8_0"},
    Scheme{"compressed-tensors", "compressed-tensors", "Q8_0 or Q4_K"},
    Scheme{"bitsandbytes", "bitsandbytes", "Q8_0 or Q4_K"},
    Scheme{"modelopt", "ModelOpt", "Q8_0 or Q4_K"},
    Scheme{"mlx", "MLX", "Q8_0 or Q4_K"},
};

/// The method of an object that does not name it, by the keys that its writers give it; "" if these
/// are none that are known.
std::string method_by_keys(const json& object) {
  if (!object.is_object()) return "";
  for (const auto& [key, method] :
       {std::pair{"load_in_4bit", "bitsandbytes"}, std::pair{"load_in_8bit", "bitsandbytes"},
        std::pair{"config_groups", "compressed-tensors"}, std::pair{"quant_algo", "modelopt"},
        std::pair{"group_size", "mlx"}})
    if (object.contains(key)) return method;
  return "";
}

/// " (pack-quantized)": what further an object says of its scheme; "" if nothing.
std::string detail_of(const json& object) {
  if (!object.is_object()) return "";
  if (object.value("load_in_8bit", json()) == true) return " (int8)";
  for (const char* key : {"format", "quant_algo", "bnb_4bit_quant_type"})
    if (const auto at = object.find(key); at != object.end() && at->is_string())
      return " (" + shown(*at) + ")";
  if (const auto bits = object.find("bits"); bits != object.end() && bits->is_number_integer())
    return " (" + bits->dump() + " bits)";
  return "";
}

/// Says if an object is bitsandbytes' of 4 bits, which it may name or not.
bool is_of_tables(const json& object, const std::string& method) {
  return (method == "bitsandbytes" || method.empty()) && object.is_object() &&
         object.value("load_in_4bit", json()) == true;
}

/// `where`: the key or file that says so.
[[noreturn]] void refuse_scheme(const json& object, std::string method, const std::string& where) {
  std::string name, instead = "Q8_0 or Q4_K";
  if (method.empty()) method = method_by_keys(object);
  for (const Scheme& scheme : kSchemes)
    if (method == scheme.method) name = scheme.name, instead = scheme.instead;
  if (name.empty()) name = method.empty() ? "a scheme without a name" : in_quotes(method);
  throw Error("a checkpoint quantised by " + name + detail_of(object) + " (" + where +
              ") is not supported: take the model in BF16 or F16, or as a GGUF file in " + instead +
              "; canopy quantize makes one from BF16");
}

}  // namespace

Quantization quantization_of(const json& object_of_config) {
  const Fields config(object_of_config);
  Quantization scheme;
  // The second is an older name of the first, and the third is MLX's own.
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    const json* object = config.find(key);
    if (!object) continue;
    std::string method = std::string(key) == "compression_config" ? "compressed-tensors" : "";
    const json named = object->is_object() ? object->value("quant_method", json()) : *object;
    if (named.is_string())
      method = named.get<std::string>();
    else if (!named.is_null() && !named.is_object())
      method = named.dump();
    const bool says_nothing = method.empty() || method == "compressed-tensors";
    if (method == "fp8")
      scheme.fp8 = read_fp8(*object, key);
    else if (says_nothing && is_of_floats(*object))
      scheme.fp8 = read_compressed_tensors(*object, key);
    else if (says_nothing && is_of_integers(*object))
      scheme.integers = read_compressed_integers(*object, key);
    else if (says_nothing && is_compressed_nvfp4(*object))
      scheme.nvfp4 = read_compressed_nvfp4(*object, key);
    else if (method == "modelopt" && is_modelopt_nvfp4(*object))
      scheme.nvfp4 = read_modelopt_nvfp4(*object, key);
    else if (is_of_tables(*object, method))
      scheme.tables = true;
    else if (method == "mxfp4")
      scheme.mxfp4 = true;
    else if (method == "awq")
      scheme.integers = read_awq(*object, key);
    else if (method == "gptq")
      scheme.integers = read_gptq(*object, key);
    else
      refuse_scheme(*object, method, "key " + config.name(key));
  }
  return scheme;
}

void add_quantization_file(const json& file, Quantization& scheme) {
  if (!file.is_object()) return;
  const json part = file.value("quantization", json());
  if (is_modelopt_nvfp4(part)) {
    scheme.nvfp4 = read_modelopt_nvfp4(part, "hf_quant_config.json: quantization");
    return;
  }
  // One without an algorithm is about the KV cache alone.
  if (part.is_object() && !part.value("quant_algo", json()).is_null())
    refuse_scheme(part, "modelopt", "file hf_quant_config.json");
}

}  // namespace canopy
