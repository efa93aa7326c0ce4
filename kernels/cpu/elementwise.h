#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/pool.h"
#include "kernels/ops.h"

namespace canopy::cpu {

/// The ops of the same name in Ops, now, on the pool.
void rms_norm(Pool& pool, ConstTensorView x, ConstTensorView g, float eps, TensorView y);
void layer_norm(Pool& pool, ConstTensorView x, const LayerNorm& norm, TensorView y);
void swiglu(Pool& pool, ConstTensorView gate, ConstTensorView up, TensorView y,
            const Gating& gating);
void activate(Pool& pool, Activation activation, ConstTensorView x, TensorView y,
              const XieluFactors& xielu);
void add(Pool& pool, ConstTensorView x, float factor, TensorView y);
/// The same of one row.
void add_to_row(std::span<const float> x, float factor, float* y);
void scale(Pool& pool, TensorView x, float factor, float cap);
void take_apart(Pool& pool, ConstTensorView fused, const RowParts& parts);
/// Throws Error if an id is outside the table.
void embed(Pool& pool, WeightView table, ConstTensorView id, TensorView y, Accumulate accumulate);
/// scratch: rope_scratch_bytes of head_dim.
void rope(Pool& pool, std::byte* scratch, TensorView qk, ConstTensorView position,
          const Rope& rope);
std::size_t rope_scratch_bytes(std::int64_t head_dim, std::size_t threads);
void store_kv(Pool& pool, ConstTensorView k, ConstTensorView v, std::int64_t first_slot,
              const KvView& kv);
/// scratch: keep_kv_scratch_bytes of path's length. Throws Error if a row of path is outside the
/// cache.
void keep_kv(Pool& pool, std::byte* scratch, ConstTensorView path, std::int64_t first_slot,
             const KvView& kv);
std::size_t keep_kv_scratch_bytes(std::int64_t rows, std::int64_t head_dim, std::size_t threads);

}  // namespace canopy::cpu
