#pragma once
#include <functional>
#include <span>
#include <stop_token>

#include "src/engine/engine.h"

namespace canopy {

/// Sum of -log p(token | those before it in its window), and of how many tokens.
struct Loss {
  double sum = 0;
  std::int64_t tokens = 0;
};

struct LossEvents {
  std::function<void(const Loss& so_far)> on_window;
  Transformer::OnUnit on_unit;
};

/// Scores each window of `context` tokens alone, all but its first token. The plan must have been
/// made with logit_rows >= context - 1. Throws Error if it was not, or where the model's values are
/// not finite; Stopped on request.
Loss measure_loss(Engine& engine, std::span<const TokenId> text, int context,
                  const LossEvents& events = {}, std::stop_token stop = {});

}  // namespace canopy
