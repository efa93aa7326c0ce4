#pragma once
#include <optional>
#include <vector>

#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/rope_scaling.h"

namespace canopy {

/// Recipe of a checkpoint's rotary frequencies, as another container can have it.
struct SourceRope {
  RopeScaling scaling;
  /// Divisors of the default frequencies, where that is not a matter of `scaling.type` none, linear
  /// or yarn: llama3's scaling, or pairs that are not rotated, which GGUF files carry as
  /// rope_freqs.weight. [head_dim / 2] or empty. Those of longrope are in `scaling`.
  std::vector<float> frequency_factors;
  /// The base of the frequencies of layers with windows, where they have their own.
  std::optional<double> local_theta = {};
};

/// Reads the keys that Checkpoint::open has checked. A GGUF file's factors are recognised as
/// llama3's scaling where they are that (type kLlama3 then). Throws: Error.
SourceRope source_rope(const Checkpoint& checkpoint);

}  // namespace canopy
