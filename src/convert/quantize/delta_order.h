#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/checkpoint/model_tensors.h"

namespace canopy {

/// Order of the values of a source's tensor in a GGUF file.
struct StoredOrder {
  std::vector<std::int64_t> rows;  // of the source, in the output's order; none: all, as they are
  std::vector<std::int64_t> columns;  // the same, of each row
  bool rate_of_log = false;           // the output has -exp(x) of each value
  bool as_it_is() const { return columns.empty() && !rate_of_log; }  // of a row
  /// Gives a row of the source the output's order and values.
  void apply(std::vector<float>& row) const;
};

/// Returns the order of a delta net's tensor in a GGUF file, which llama.cpp reads: value heads of
/// the key heads by turns, where each key head's were next to each other, and rates of decay in
/// place of their logarithms. `config`: the source's; one that a GGUF file had stays as it is.
StoredOrder gguf_order(const DeltaConfig& config, TensorRole role);
/// Returns which rows of queries, keys, values and gates by key heads (kDeltaJoined) make the
/// matrix of queries, keys and values (kDeltaMixed), or that of gates (kDeltaGate).
StoredOrder part_of_joined(const DeltaConfig& config, TensorRole part);

}  // namespace canopy
