#pragma once
// Private to the model: the norms of a decoder.
#include <optional>

#include "kernels/device.h"
#include "offload/weight_source.h"
#include "src/checkpoint/model_config.h"

namespace canopy {

/// The vectors of a norm; without a bias it is added to nothing.
struct Norms {
  TensorRole gain;
  std::optional<TensorRole> bias;
};
inline constexpr Norms kEmbeddingNorms{TensorRole::kEmbeddingNorm, TensorRole::kEmbeddingNormBias};
inline constexpr Norms kAttentionNorms{TensorRole::kAttentionNorm, TensorRole::kAttentionNormBias};
inline constexpr Norms kAttentionResultNorms{TensorRole::kAttentionResultNorm, {}};
inline constexpr Norms kMlpResultNorms{TensorRole::kMlpResultNorm, {}};
inline constexpr Norms kMlpNorms{TensorRole::kMlpNorm, TensorRole::kMlpNormBias};
inline constexpr Norms kFinalNorms{TensorRole::kFinalNorm, TensorRole::kFinalNormBias};

/// Normalises rows as the decoder does. y may be x. Shapes: x, y [n, dim].
inline void normalize(Ops& ops, const ModelConfig& config, ConstTensorView x, const UnitWeights& w,
                      Norms norms, TensorView y, Stream& compute) {
  const ConstTensorView gain = w.vector(norms.gain);
  if (config.form.norm == NormKind::kLayer)
    ops.layer_norm(compute, x,
                   {gain, norms.bias ? w.vector(*norms.bias) : ConstTensorView(), config.norm_eps},
                   y);
  else
    ops.rms_norm(compute, x, gain, config.norm_eps, y);
}

}  // namespace canopy
