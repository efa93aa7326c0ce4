#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/pool.h"
#include "kernels/ops.h"

namespace canopy::cpu {

/// The ops of the same name in Ops, now.
void route(ConstTensorView logits, const RouterRule& rule, const RoutedRows& to);
/// scratch: expert_scratch_bytes of these rows and the expert's shape, 256-byte aligned.
void expert(Pool& pool, std::byte* scratch, ConstTensorView x, ConstTensorView weight,
            ConstTensorView rows, const ExpertWeights& weights, const ExpertForm& form,
            TensorView sum);
/// Grows with each.
std::size_t expert_scratch_bytes(std::int64_t rows, std::int64_t dim, std::int64_t hidden,
                                 std::size_t threads);

}  // namespace canopy::cpu
