#include "kernels/cpu/edit_logits.h"

#include <algorithm>
#include <span>

namespace canopy::cpu {

namespace {

/// One row. `bits`: of the tokens that are allowed; null: all are.
void edit_row(const float* x, std::int64_t vocab, std::span<const LogitEdit> own,
              std::span<const LogitEdit> shared, const std::uint32_t* bits, float* y) {
  if (bits != nullptr) {
    for (std::int64_t t = 0; t < vocab; ++t)
      y[t] = is_allowed(bits, t) ? bounded_logit(x[t]) : is_finite(x[t]) ? kMaskedLogit : x[t];
  } else if (x != y) {
    std::copy_n(x, vocab, y);
  }
  const auto apply = [&](const LogitEdit& edit) {
    if (edit.token < vocab && (bits == nullptr || is_allowed(bits, edit.token)))
      y[edit.token] = edited_logit(y[edit.token], edit);
  };
  for (const LogitEdit& edit : shared)
    if (std::none_of(own.begin(), own.end(),
                     [&](const LogitEdit& other) { return other.token == edit.token; }))
      apply(edit);
  for (const LogitEdit& edit : own) apply(edit);
}

}  // namespace

void edit_logits(Pool& pool, ConstTensorView logits, const LogitEdits& edits, TensorView y) {
  const std::int64_t vocab = logits.dim(1);
  const std::int64_t words = edits.allowed.empty() ? 0 : edits.allowed.dim(1);
  const auto* const rows = reinterpret_cast<const LogitEditRow*>(edits.row.data());
  const auto* const edit = reinterpret_cast<const LogitEdit*>(edits.edit.data());
  const auto* const allowed = reinterpret_cast<const std::uint32_t*>(edits.allowed.data());
  pool.for_each(static_cast<std::size_t>(logits.dim(0)), [&](std::size_t i, std::size_t) {
    const auto at = static_cast<std::int64_t>(i) * vocab;
    const LogitEditRow& row = rows[i];
    edit_row(reinterpret_cast<const float*>(logits.data()) + at, vocab,
             {edit + row.first, edit + row.end}, {edit + row.shared_first, edit + row.shared_end},
             row.allowed < 0 ? nullptr : allowed + row.allowed * words,
             reinterpret_cast<float*>(y.data()) + at);
  });
}

}  // namespace canopy::cpu
