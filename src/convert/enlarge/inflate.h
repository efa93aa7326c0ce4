#pragma once
#include <cstdint>
#include <filesystem>

#include "src/checkpoint/checkpoint.h"
#include "src/convert/output.h"

namespace canopy {

struct InflateRequest {
  std::filesystem::path output;  // the enlargement's directory
  std::filesystem::path small;   // the small model's, rounded to BF16
  std::uint64_t bytes = 0;       // of the enlargement's weights, about; of none with experts
  int experts = 0, active = 0;   // as with_experts(), in place of a size
  std::uint64_t seed = 0;
};
/// Writes a function-preserving enlargement of a model as a Hugging Face directory in BF16, and the
/// small model rounded to BF16: their logits are equal, bit for bit with Canopy's CPU kernels
/// (docs/formats.md says why). Streams; deterministic for a seed. Neither directory appears before
/// both are complete; a small model that is there already, the same in every file, stays. Returns
/// the enlargement's config. Throws: Error.
ModelConfig inflate(const Checkpoint& model, const InflateRequest& request,
                    const Progress& progress);

}  // namespace canopy
