#pragma once
// The rows of a sweep as the transformer works on them.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "src/model/kv_cache.h"
#include "src/model/transformer.h"

namespace canopy {

/// Throws Error if a model of this shape and these limits cannot run the part.
void check_part(const SequenceRows& part, const ModelConfig& config,
                const Transformer::Limits& limits);

/// Rows of one part that lie in one chunk: what attention, the cache and RoPE see at once.
struct Segment {
  KvCache* kv;
  int first_row, rows;  // in the sweep's flat list of nodes
  DeviceScalar<std::int64_t> prefix;
  int first_node;           // as in TreeAttention
  std::size_t bits_offset;  // words into the bits buffer
  bool chain;
  std::vector<DeltaStep> steps = {};  // of recurrent layers, where the model has some
};
struct Chunk {
  int first_row = 0, rows = 0;
  std::vector<Segment> segments;
};
/// A forward that was prepared: its chunks, and where its positions and its logit rows begin among
/// those of all.
struct Layout {
  int nodes = 0, logit_rows = 0, read_rows = 0;
  std::size_t first_position = 0, first_id = 0;
  std::vector<Chunk> chunks;
};

}  // namespace canopy
