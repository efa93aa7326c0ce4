#pragma once
#include "kernels/cuda/block.h"
#include "kernels/logit_edit.h"

namespace canopy::cuda {

/// Ops::edit_logits. One block per row.
struct EditLogits {
  static constexpr int kThreads = 256;
  const float* logits;
  std::int64_t vocab;
  const LogitEditRow* rows;
  const LogitEdit* edits;
  const std::uint32_t* allowed;
  std::int64_t words;  // of a row of bits
  float* y;

  static Grid grid(std::int64_t rows) { return {rows, kThreads}; }

  template <class Block>
  CANOPY_KERNEL void operator()(Block& block) const {
    const float* const x = logits + block.index() * vocab;
    float* const to = y + block.index() * vocab;
    const LogitEditRow row = rows[block.index()];
    const std::uint32_t* const bits = row.allowed < 0 ? nullptr : allowed + row.allowed * words;
    const auto apply = [&](const LogitEdit& edit) {
      if (edit.token < vocab && (bits == nullptr || is_allowed(bits, edit.token)))
        to[edit.token] = edited_logit(to[edit.token], edit);
    };
    const auto has_own = [&](std::int32_t token) {
      for (std::int32_t e = row.first; e < row.end; ++e)
        if (edits[e].token == token) return true;
      return false;
    };
    block.step([&](int t) {
      for (std::int64_t i = t; i < vocab; i += block.threads())
        to[i] = bits == nullptr       ? x[i]
                : is_allowed(bits, i) ? bounded_logit(x[i])
                : is_finite(x[i])     ? kMaskedLogit
                                      : x[i];
    });
    block.step([&](int t) {
      for (std::int32_t e = row.shared_first + t; e < row.shared_end; e += block.threads())
        if (!has_own(edits[e].token)) apply(edits[e]);
      for (std::int32_t e = row.first + t; e < row.end; e += block.threads()) apply(edits[e]);
    });
  }
};

}  // namespace canopy::cuda
