#pragma once
#include <cstdint>

namespace canopy {

/// A tensor's part in the decoder, whatever a container calls it.
enum class TensorRole : std::uint8_t {
  kEmbedding,
  kProjectIn,
  kPositions,
  kEmbeddingNorm,
  kEmbeddingNormBias,
  kAttentionNorm,
  kAttentionNormBias,
  kFusedQkv,
  kFusedQkvBias,
  kQuery,
  kKey,
  kValue,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kQueryNorm,
  kKeyNorm,
  kSinks,
  kOutput,
  kOutputBias,
  kAttentionResultNorm,
  kMlpNorm,
  kMlpNormBias,
  kGate,
  kUp,
  kUpBias,
  kDown,
  kDownBias,
  kMlpResultNorm,
  kLayerScale,
  kRouter,
  kRouterBias,
  kChoiceBias,
  kSharedSwitch,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kExpertGateBias,
  kExpertUpBias,
  kExpertDownBias,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kFinalNorm,
  kFinalNormBias,
  kProjectOut,
  kHead
};

}  // namespace canopy
