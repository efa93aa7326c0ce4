#include "kernels/gpu_scratch.h"

#include <algorithm>

#include "kernels/delta.h"

namespace canopy {

AttentionSlices::AttentionSlices(std::int64_t n, std::int64_t heads, std::int64_t kv_heads,
                                 std::int64_t head_dim) {
  constexpr std::int64_t kHalf = sizeof(std::uint16_t), kFloat = sizeof(float);
  // A query takes room for itself, scores and weights, weighted values, largest score and sum.
  const std::int64_t of_query =
      head_dim * kHalf + kKeys * (kFloat + kHalf) + head_dim * kFloat + 2 * kFloat;
  const auto slice = static_cast<std::int64_t>(kGpuSliceBytes);
  const std::int64_t room = std::clamp<std::int64_t>(slice / (heads * of_query), 1, n);
  const std::int64_t slices = (n + room - 1) / room;
  nodes = (n + slices - 1) / slices;
  const auto take = [&](std::int64_t size) {
    const std::size_t begin = bytes;
    bytes += (static_cast<std::size_t>(size) + kGpuAlignment - 1) / kGpuAlignment * kGpuAlignment;
    return begin;
  };
  const std::int64_t rows = room * heads, cache = kv_heads * kKeys * head_dim * kHalf;
  keys = take(cache);
  values = take(cache);
  queries = take(rows * head_dim * kHalf);
  scores = take(rows * kKeys * kFloat);
  weights = take(rows * kKeys * kHalf);
  sums = take(rows * head_dim * kFloat);
  state = take(rows * 2 * kFloat);
}

static std::size_t aligned(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + kGpuAlignment - 1) / kGpuAlignment * kGpuAlignment;
}

LinearScratch::LinearScratch(std::int64_t n, std::int64_t k)
    : slice(aligned(n * k * std::int64_t{sizeof(std::uint16_t)})),
      slice_rows(
          std::max<std::int64_t>(1, static_cast<std::int64_t>(kGpuExpandedBytes) / (2 * k))) {
  bytes = slice + static_cast<std::size_t>(slice_rows * 2 * k);
}

ExpertScratch::ExpertScratch(std::int64_t n, std::int64_t dim, std::int64_t hidden)
    : gate(aligned(n * dim * std::int64_t{sizeof(float)})),
      up(gate + aligned(n * hidden * std::int64_t{sizeof(float)})),
      y(up + aligned(n * hidden * std::int64_t{sizeof(float)})),
      linear(y + aligned(n * dim * std::int64_t{sizeof(float)})),
      bytes(linear + std::max(LinearScratch(n, dim).bytes, LinearScratch(n, hidden).bytes)) {}

FewExpertsScratch::FewExpertsScratch(std::int64_t n, std::int64_t rows, std::int64_t dim,
                                     std::int64_t hidden)
    : inner(aligned(n * dim * std::int64_t{sizeof(std::uint16_t)})),
      bytes(inner + aligned(rows * hidden * std::int64_t{sizeof(std::uint16_t)})) {}

DeltaScratch::DeltaScratch(std::int64_t n, std::int64_t value_heads)
    : rows(aligned(n * 2 * std::int64_t{sizeof(std::int32_t)})),
      weights(rows + aligned(n * kLongestWay * std::int64_t{sizeof(std::int32_t)})),
      bytes(weights + aligned(n * value_heads * kLongestWay * 2 * std::int64_t{sizeof(float)})) {}

std::size_t gpu_scratch_bytes(const Workload& largest) {
  const auto rows = static_cast<std::size_t>(largest.rows);
  const auto columns = static_cast<std::size_t>(largest.columns);
  const auto row = static_cast<std::size_t>(largest.kv_heads * largest.head_dim);
  const std::size_t of_linear =  // rounded inputs, a slice of the weights
      rows * columns * sizeof(std::uint16_t) + kGpuAlignment + kGpuExpandedBytes;
  const std::size_t of_keep_kv = rows * row * sizeof(float);
  std::size_t of_attention = 0;
  if (largest.rows >= AttentionSlices::kLeastNodes && largest.heads > 0)
    of_attention =
        AttentionSlices(largest.rows, largest.heads, largest.kv_heads, largest.head_dim).bytes;
  constexpr std::int64_t kMostRows = 72;  // of few rows of several experts (few_rows.h)
  const std::size_t of_expert =
      largest.expert_hidden == 0
          ? 0
          : std::max(
                ExpertScratch(largest.rows, largest.columns, largest.expert_hidden).bytes,
                FewExpertsScratch(largest.rows, kMostRows, largest.columns, largest.expert_hidden)
                    .bytes);
  const std::size_t of_delta =
      DeltaScratch(std::min(largest.delta_rows, DeltaScratch::kMostNodes), largest.delta_heads)
          .bytes;
  return std::max({of_linear, of_keep_kv, of_attention, of_expert, of_delta});
}

}  // namespace canopy
