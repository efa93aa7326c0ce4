// Operations that depend on where a token stands: rotary embedding, and rows of the KV cache.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/cpu/elementwise.h"
#include "src/base/error.h"
#include "src/base/formats/weight_format.h"

namespace canopy::cpu {

std::size_t rope_scratch_bytes(std::int64_t head_dim, std::size_t threads) {
  return threads * to_size(head_dim) * sizeof(float);
}

// The angle is position * inverse_frequency rounded to f32, and each product of the rotation is
// rounded before they are added, as in the reference implementation.
void rope(Pool& pool, std::byte* scratch, TensorView qk, ConstTensorView position,
          const Rope& rope) {
  const std::size_t n = to_size(qk.dim(0)), heads = to_size(qk.dim(1)), hd = to_size(qk.dim(2));
  const std::size_t half = to_size(rope.inverse_frequency.dim(0));
  const bool adjacent = rope.pairs == RopePairs::kAdjacent;
  const std::size_t next_pair = adjacent ? 2 : 1, partner = adjacent ? 1 : half;
  const auto* frequency = reinterpret_cast<const float*>(rope.inverse_frequency.data());
  const auto* positions = reinterpret_cast<const std::int32_t*>(position.data());
  auto* values = reinterpret_cast<float*>(qk.data());
  const std::size_t rows = std::max<std::size_t>(1, 8192 / (heads * hd + 1));  // worth a worker
  pool.for_each((n + rows - 1) / rows, [&](std::size_t share, std::size_t worker) {
    float* const cosine = reinterpret_cast<float*>(scratch) + worker * hd;
    float* const sine = cosine + half;
    for (std::size_t i = share * rows; i < std::min(n, (share + 1) * rows); ++i) {
      const auto periods = static_cast<float>(positions[i] / rope.period);
      const float temperature = 1.0f + rope.beta * std::log(1.0f + periods);
      for (std::size_t p = 0; p < half; ++p) {
        const float angle = static_cast<float>(positions[i]) * frequency[p];
        cosine[p] = std::cos(angle) * rope.magnitude;
        sine[p] = std::sin(angle) * rope.magnitude;
      }
      for (std::size_t h = 0; h < heads; ++h) {
        float* const head = values + (i * heads + h) * hd;
        for (std::size_t p = 0; p < half; ++p) {
          float& a = head[p * next_pair];
          float& b = head[p * next_pair + partner];
          const float rotated = a * cosine[p] - b * sine[p];
          b = (b * cosine[p] + a * sine[p]) * temperature;
          a = rotated * temperature;
        }
      }
    }
  });
}

/// Writes a row of a cache of a plain format. F16 saturates instead of overflowing.
static void encode_within(DType dtype, std::span<const float> row, std::byte* out) {
  visit_format(PlainFormats(), dtype, [&]<class Format>(Format) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const float value = Format::kDType == DType::kF16 ? within_f16(row[i]) : row[i];
      const typename Format::Element bits = Format::encode(value);
      std::memcpy(out + i * sizeof bits, &bits, sizeof bits);
    }
  });
}

void store_kv(Pool& pool, ConstTensorView k, ConstTensorView v, std::int64_t first_slot,
              const KvView& kv) {
  const std::size_t n = to_size(k.dim(0)), heads = to_size(k.dim(1)), hd = to_size(k.dim(2));
  const SlotTable table = slot_table(kv);
  const auto store = [&](ConstTensorView from, TensorView to, std::size_t head) {
    const auto* rows = reinterpret_cast<const float*>(from.data());
    for (std::size_t i = 0; i < n; ++i)
      encode_within(kv.k.dtype(), {rows + (i * heads + head) * hd, hd},
                    to.data() + table.at(static_cast<std::int64_t>(head),
                                         first_slot + static_cast<std::int64_t>(i)));
  };
  const std::size_t share = n * hd < 8192 ? heads : 1;  // heads worth a worker
  pool.for_each((heads + share - 1) / share, [&](std::size_t index, std::size_t) {
    for (std::size_t head = index * share; head < std::min(heads, (index + 1) * share); ++head) {
      store(k, kv.k, head);
      store(v, kv.v, head);
    }
  });
}

std::size_t keep_kv_scratch_bytes(std::int64_t rows, std::int64_t head_dim, std::size_t threads) {
  return threads * to_size(rows) * to_size(head_dim) * sizeof(float);
}

void keep_kv(Pool& pool, std::byte* scratch, ConstTensorView path, std::int64_t first_slot,
             const KvView& kv) {
  const std::size_t n = to_size(path.dim(0)), heads = to_size(kv.k.dim(0));
  const std::size_t bytes = row_bytes(kv.k.dtype(), kv.k.dim(2));
  const SlotTable table = slot_table(kv);
  const auto* rows = reinterpret_cast<const std::int32_t*>(path.data());
  for (std::size_t i = 0; i < n; ++i)
    if (rows[i] < 0 || rows[i] >= kv.slots() - first_slot)
      throw Error("keep_kv: row " + std::to_string(rows[i]) + " after slot " +
                  std::to_string(first_slot) + " is outside a cache of " +
                  std::to_string(kv.slots()) + " slots");
  pool.for_each(heads, [&](std::size_t head, std::size_t worker) {
    std::byte* const kept = scratch + worker * n * to_size(kv.k.dim(2)) * sizeof(float);
    for (const TensorView& cache : {kv.k, kv.v}) {
      const auto row = [&](std::int64_t node) {
        return cache.data() + table.at(static_cast<std::int64_t>(head), first_slot + node);
      };
      for (std::size_t i = 0; i < n; ++i) std::memcpy(kept + i * bytes, row(rows[i]), bytes);
      for (std::size_t i = 0; i < n; ++i)
        std::memcpy(row(static_cast<std::int64_t>(i)), kept + i * bytes, bytes);
    }
  });
}

}  // namespace canopy::cpu
