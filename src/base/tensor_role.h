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
  kDeltaMixed,
  kDeltaGate,
  kDeltaJoined,
  kDeltaBeta,
  kDeltaStep,
  kDeltaJoinedSteps,
  kDeltaTaps,
  kDeltaStepBias,
  kDeltaRate,
  kDeltaNorm,
  kDeltaOutput,
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

/// Says if processes that share a model's rows have some rows of such a matrix each. They have the
/// others whole: these are small, are looked up, or belong to experts.
constexpr bool is_cut_by_rows(TensorRole role) {
  switch (role) {
    case TensorRole::kFusedQkv:
    case TensorRole::kQuery:
    case TensorRole::kKey:
    case TensorRole::kValue:
    case TensorRole::kOutput:
    case TensorRole::kGate:
    case TensorRole::kUp:
    case TensorRole::kDown:
    case TensorRole::kHead:
      return true;
    default:
      return false;
  }
}

}  // namespace canopy
