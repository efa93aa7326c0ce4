#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/checkpoint/quantized/matrix_parts.h"

namespace canopy {

/// A config.json's scheme of whole numbers.
struct IntegerScheme {
  std::string name;  // for messages: "AWQ"
  MatrixParts::Layout layout;
  int zero_added = 0;
  /// Matrices that the scheme allows.
  struct Form {
    int bits;
    std::int64_t group;  // columns that share a scale; -1: all of a row
    bool zeros;          // zero points are stored
    bool operator==(const Form&) const = default;
  };
  std::vector<Form> forms;
};

/// Each throws Error naming what is not supported, and the key.
IntegerScheme read_awq(const nlohmann::json& object, const std::string& key);
IntegerScheme read_gptq(const nlohmann::json& object, const std::string& key);
IntegerScheme read_compressed_integers(const nlohmann::json& object, const std::string& key);
/// Says if an object's format is compressed-tensors' pack-quantized or int-quantized.
bool is_of_integers(const nlohmann::json& object);

}  // namespace canopy
