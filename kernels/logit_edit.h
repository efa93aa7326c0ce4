#pragma once
// Edits of logits: one text for all backends, so that they compute the same.
#include <cstdint>

#include "src/base/formats/weight_format.h"

namespace canopy {

/// Logit that edit_logits writes for a token that is not allowed. No temperature up to the highest
/// leaves it a probability above 0, as edited logits stay above -kMostEdited; and it is finite, so
/// that what is not finite still shows a damaged model.
inline constexpr float kMaskedLogit = -1e30f;
inline constexpr float kMostEdited = 1e20f;  // edited logits lie within it, up and down
inline constexpr float kHighestTemperature = 1e6f;

/// A change of one logit x: x + add; then divided by `repetition` if it is above 0, else multiplied
/// by it; then less `subtract`.
struct LogitEdit {
  std::int32_t token = 0;
  float add = 0, repetition = 1, subtract = 0;
  bool operator==(const LogitEdit&) const = default;
};

/// Edits that a row has: its own, numbers [first, end), and [shared_first, shared_end), which it
/// has in common with other rows, but for tokens that have one of its own.
struct LogitEditRow {
  std::int32_t first = 0, end = 0, shared_first = 0, shared_end = 0;
  std::int32_t allowed = -1;  // its row of bits; -1: all tokens are allowed
};

CANOPY_HOST_DEVICE inline bool is_finite(float x) {
  return x >= -0x1.fffffep127f && x <= 0x1.fffffep127f;
}

CANOPY_HOST_DEVICE inline float bounded_logit(float x) {
  if (!is_finite(x)) return x;
  return x > kMostEdited ? kMostEdited : x < -kMostEdited ? -kMostEdited : x;
}

/// Leaves what is not finite as it is.
CANOPY_HOST_DEVICE inline float edited_logit(float x, const LogitEdit& edit) {
  if (!is_finite(x)) return x;
  x += edit.add;
#if defined(__CUDA_ARCH__)  // a plain product would be merged with the difference
  x = x > 0 ? x / edit.repetition : __fmul_rn(x, edit.repetition);
#else
  x = x > 0 ? x / edit.repetition : x * edit.repetition;
#endif
  x -= edit.subtract;
  return x > kMostEdited ? kMostEdited : x < -kMostEdited ? -kMostEdited : x;
}

CANOPY_HOST_DEVICE inline bool is_allowed(const std::uint32_t* bits, std::int64_t token) {
  return (bits[token / 32] >> (token % 32) & 1u) != 0;
}

}  // namespace canopy
