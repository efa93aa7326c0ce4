#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "src/checkpoint/quantized/fp8_scheme.h"
#include "src/checkpoint/quantized/integer_scheme.h"

namespace canopy {

/// The scheme of a config.json's weights; none if they are plain.
struct Quantization {
  std::optional<Fp8Scheme> fp8;
  std::optional<IntegerScheme> integers;
  bool mxfp4 = false;
};
/// Throws Error as the readers of schemes do, or naming a scheme that is not supported.
Quantization quantization_of(const nlohmann::json& config);

}  // namespace canopy
