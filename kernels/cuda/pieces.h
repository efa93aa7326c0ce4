#pragma once
// Weights of a row, a few that lie side by side at a time: what they have in common is computed
// once.
#include "kernels/cuda/rows.h"

namespace canopy::cuda {

inline constexpr int kPiece = 8;  // weights, and activations of 16 bits: 16 bytes
struct Sixteen {
  std::uint16_t bits[kPiece];
};

/// Gives weights [k, k + kPiece) of a row that is not packed. k is a multiple of kPiece.
template <class Format>
CANOPY_KERNEL void weights_of_piece(const StoredRow& row, std::int64_t k, float (&to)[kPiece]) {
  if constexpr (requires { Format::kGroupElements; }) {
    constexpr unsigned kPieces = Format::kBlockElements / kPiece;
    static_assert(Format::kGroupElements % kPiece == 0);
    const auto piece = static_cast<std::uint32_t>(k / kPiece);
    const std::byte* const block = row.data + std::int64_t{piece / kPieces} * Format::kBlockBytes;
    const int first = static_cast<int>(piece % kPieces) * kPiece;
    const int group = first / Format::kGroupElements;
    // The factors of element_of_group(), once for the piece.
    const float scale =
        format::scale_of<Format>(block) * static_cast<float>(Format::group_scale(block, group));
    float minimum = 0.0f;
    if constexpr (Format::kMinimumAt >= 0)
      minimum = format::load_f16(block + Format::kMinimumAt) *
                static_cast<float>(Format::group_minimum(block, group));
    CANOPY_UNROLL
    for (int i = 0; i < kPiece; ++i) {
      const float product = scale * static_cast<float>(Format::code(block, first + i));
      to[i] = Format::kMinimumAt >= 0 ? product + minimum : product;
    }
  } else {
    CANOPY_UNROLL
    for (int i = 0; i < kPiece; ++i) to[i] = weight_at<Format>(row, k + i);
  }
}

}  // namespace canopy::cuda
