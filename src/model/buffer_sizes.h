#pragma once
// Private to the transformer: the sizes of its buffers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/model/transformer.h"

namespace canopy {

/// Counts the 64-bit words that hold `bits` bits.
inline int words_for(int bits) { return (bits + 63) / 64; }

/// Gives what is known before any row: rotary frequencies, those of each kind of layer after the
/// other's where they differ, and those of long texts after all; or slopes of the heads. Then ones,
/// as many as a head has columns, where values are normalised.
std::vector<float> constants_of(const ModelConfig& config);
/// Finds where those of a layer begin in texts of this length, and how many there are.
std::size_t rope_offset(const ModelConfig& config, int layer, TextLength length);
std::int64_t rope_pairs(const ModelConfig& config, int layer);

/// Buffers of one model, as byte sizes, so that the budget and the constructor cannot disagree.
struct BufferSizes {
  std::size_t embedded, residual, normed, work, routes, last, logit_input, logits, position, prefix,
      ids, bits, constants;
  std::size_t logit_ids;  // the part of `ids` before those of read_rows
  std::size_t ones;       // the part of `constants` before the ones

  BufferSizes(const ModelConfig& config, const Transformer::Limits& limits);
  std::size_t total() const {
    return embedded + residual + normed + work + routes + last + logit_input + logits + position +
           prefix + ids + bits + constants;
  }
};

}  // namespace canopy
