#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "src/checkpoint/quantized/fp8_scheme.h"
#include "src/checkpoint/quantized/integer_scheme.h"
#include "src/checkpoint/quantized/nvfp4_scheme.h"

namespace canopy {

/// The scheme of a config.json's weights; none if they are plain.
struct Quantization {
  std::optional<Fp8Scheme> fp8;
  std::optional<IntegerScheme> integers;
  std::optional<Nvfp4Scheme> nvfp4;
  bool mxfp4 = false;
  bool tables = false;  // bitsandbytes' nf4 and fp4
};
/// Throws Error as the readers of schemes do, or naming a scheme that is not supported.
Quantization quantization_of(const nlohmann::json& config);
/// Adds what a hf_quant_config.json says, which some quantised directories have next to a
/// config.json that says nothing of it. Throws Error as above.
void add_quantization_file(const nlohmann::json& file, Quantization& scheme);

}  // namespace canopy
