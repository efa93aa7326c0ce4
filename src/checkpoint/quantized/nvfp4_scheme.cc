// quantization_config of weights in NVFP4, as compressed-tensors and ModelOpt have it.
#include "src/checkpoint/quantized/nvfp4_scheme.h"

#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/utf8.h"
#include "src/checkpoint/config_fields.h"

namespace canopy {

namespace {

using nlohmann::json;
constexpr const char* kFormat = "nvfp4-pack-quantized";

void require(const Fields& fields, const char* key, const json& wanted, bool may_lack) {
  const json* const value = fields.find(key);
  if (value ? *value == wanted : may_lack) return;
  throw Error("NVFP4 with key " + fields.name(key) + ": " + (value ? shown(*value) : "null") +
              ", not " + shown(wanted) +
              ", is not supported: take the model in BF16, or as a GGUF file in Q4_K");
}

}  // namespace

bool is_compressed_nvfp4(const json& object) {
  return object.is_object() && object.value("format", json()) == kFormat &&
         object.contains("config_groups");
}

Nvfp4Scheme read_compressed_nvfp4(const json& object, const std::string& key) {
  int number = 0;  // their names are anything
  for (const json& group : object.at("config_groups")) {
    const std::string of_group = key + ".config_groups[" + std::to_string(number++) + "]";
    const Fields of(group, of_group);
    require(of, "format", kFormat, true);
    const json* const weights = of.find("weights");
    if (!weights) throw Error("key " + of.name("weights") + " is missing");
    const Fields form(*weights, of_group + ".weights");
    require(form, "num_bits", 4, false);
    require(form, "type", "float", false);
    require(form, "strategy", "tensor_group", false);
    require(form, "group_size", 16, false);
    require(form, "symmetric", true, true);
  }
  return {"compressed-tensors (nvfp4-pack-quantized)", ".weight_packed", ".weight_global_scale",
          true};
}

bool is_modelopt_nvfp4(const json& object) {
  return object.is_object() && object.value("quant_algo", json()) == "NVFP4";
}

Nvfp4Scheme read_modelopt_nvfp4(const json& object, const std::string& key) {
  require(Fields(object, key), "group_size", 16, true);
  return {"ModelOpt (NVFP4)", ".weight", ".weight_scale_2", false};
}

}  // namespace canopy
