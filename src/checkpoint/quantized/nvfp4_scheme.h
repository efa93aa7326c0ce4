#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace canopy {

/// A writer of NVFP4: its names of the parts of a matrix, and the meaning of its factor.
struct Nvfp4Scheme {
  std::string name;                // for messages: "ModelOpt (NVFP4)"
  std::string_view codes, factor;  // after the module's name
  bool divides = false;            // the scales of groups are divided by the factor
};

/// Says if an object's format is compressed-tensors' nvfp4-pack-quantized.
bool is_compressed_nvfp4(const nlohmann::json& object);
/// Throws Error naming what is not supported, and the key.
Nvfp4Scheme read_compressed_nvfp4(const nlohmann::json& object, const std::string& key);

/// Says if an object's algorithm is ModelOpt's NVFP4.
bool is_modelopt_nvfp4(const nlohmann::json& object);
/// Throws Error naming groups of another size.
Nvfp4Scheme read_modelopt_nvfp4(const nlohmann::json& object, const std::string& key);

}  // namespace canopy
