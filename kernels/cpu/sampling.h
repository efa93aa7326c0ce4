#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/pool.h"
#include "kernels/ops.h"

namespace canopy::cpu {

/// Scratch of each of the calls below.
std::size_t sampling_scratch_bytes(std::int64_t vocab, std::size_t threads);

/// The ops of the same name in Ops, now, on the pool.
void probabilities(Pool& pool, std::byte* scratch, ConstTensorView logits, Sampling sampling,
                   TensorView p);
void top_tokens(Pool& pool, std::byte* scratch, ConstTensorView logits, int count,
                TensorView token);
void top_probabilities(Pool& pool, std::byte* scratch, ConstTensorView logits, float temperature,
                       const BestOfRows& to);
void draw_tokens(Pool& pool, std::byte* scratch, ConstTensorView q, int count,
                 Replacement replacement, StepRng rng, std::uint64_t first_index, TensorView token);

}  // namespace canopy::cpu
