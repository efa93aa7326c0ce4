#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace canopy {

/// Bytes of what passes through the scratch in slices. They should stay in the GPU's L2 cache: 50
/// MB or more on the GPUs that this is for.
inline constexpr std::size_t kGpuSliceBytes = std::size_t{32} << 20;
/// Bytes of weights that a GPU expands at once. More than the L2 cache holds: a product of fewer
/// rows of weights leaves most multiprocessors idle.
inline constexpr std::size_t kGpuExpandedBytes = std::size_t{128} << 20;
inline constexpr std::size_t kGpuAlignment = 256;  // bytes, of what lies in the scratch

/// Layout of the scratch of attention by matrix products (kernels/cuda/attention_products.h): nodes
/// in slices, and for each slice the keys in chunks. Plain data.
struct AttentionSlices {
  static constexpr std::int64_t kLeastNodes = 64;  // of a call: fewer are not worth its launches
  static constexpr std::int64_t kKeys = 8 * kKvBlock;  // of a chunk

  /// Lays out a call of n nodes. No call of fewer needs more.
  AttentionSlices(std::int64_t n, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);

  std::int64_t nodes = 0;  // of each slice but the last, which may have fewer
  // Each part begins at its number; `bytes` is the size of all.
  std::size_t keys = 0, values = 0, queries = 0, scores = 0, weights = 0, sums = 0, state = 0,
              bytes = 0;
};

/// Layout of the scratch of a product of n rows of k columns: rounded inputs, then a slice of
/// expanded weights. Plain data.
struct LinearScratch {
  LinearScratch(std::int64_t n, std::int64_t k);
  std::size_t slice = 0, bytes = 0;
  std::int64_t slice_rows = 0;
};

/// Layout of the scratch of an expert of up to n rows: these, its inner values twice, what it
/// gives, and the products' own. Plain data.
struct ExpertScratch {
  ExpertScratch(std::int64_t n, std::int64_t dim, std::int64_t hidden);
  std::size_t gate = 0, up = 0, y = 0, linear = 0, bytes = 0;
};

/// Layout of the scratch of a few rows of several experts: n rows of x, then inner values of `rows`
/// rows. Plain data.
struct FewExpertsScratch {
  FewExpertsScratch(std::int64_t n, std::int64_t rows, std::int64_t dim, std::int64_t hidden);
  std::size_t inner = 0, bytes = 0;
};

/// Layout of the scratch of the delta rule (kernels/cuda/delta/rule.h) over n nodes, at most
/// kMostNodes: what their ways are, the rows of these, and their weights. Plain data.
struct DeltaScratch {
  static constexpr std::int64_t kMostNodes = 64;  // more are run one after the other
  DeltaScratch(std::int64_t n, std::int64_t value_heads);
  std::size_t rows = 0, weights = 0, bytes = 0;
};

/// Bytes of scratch that the kernels of a GPU need for calls up to `largest` (Ops::scratch_bytes):
/// also where there is none, to plan for one. Pure.
std::size_t gpu_scratch_bytes(const Workload& largest);

}  // namespace canopy
