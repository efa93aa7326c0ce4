#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace canopy {

/// A config.json's scheme of FP8 weights: which scales they may have, and which modules have none.
struct Fp8Scheme {
  std::string name;  // for messages and `canopy inspect`: "FP8"
  bool tensor_scales = false, row_scales = false, block_scales = false;
  bool every_layer = false;                // all matrices of layers are FP8, but for those left out
  std::string left_out_key = {};           // which names them: "modules_to_not_convert"
  std::vector<std::string> left_out = {};  // as they are written there
  /// Says if a module, "model.layers.0.mlp.up_proj", is left out; nothing where an expression of
  /// the list cannot be read.
  std::optional<bool> leaves_out(std::string_view module) const;
};

/// Throws Error naming what is not supported, and the key.
Fp8Scheme read_fp8(const nlohmann::json& object, const std::string& key);
Fp8Scheme read_compressed_tensors(const nlohmann::json& object, const std::string& key);
/// Says if an object's method is compressed-tensors of floats, not of packed whole numbers.
bool is_of_floats(const nlohmann::json& object);

}  // namespace canopy
