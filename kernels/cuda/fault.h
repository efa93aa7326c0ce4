#pragma once
#include <string>

#include "kernels/cuda/block.h"
#include "src/base/error.h"

namespace canopy::cuda {

/// Puts a fault in words, as the CPU's kernels do.
inline Error error_of(const Fault& fault) {
  const std::string value = std::to_string(fault.value), limit = std::to_string(fault.limit);
  switch (fault.kind) {
    case Fault::kTokenId:
      return Error("embed: token id " + value + " is outside a table of " + limit + " rows");
    case Fault::kDeltaState:
      return Error("delta_rule: a node's state is not given, that after " + value +
                   " tokens, which the one at position " + limit + " starts from");
    default:
      return Error("keep_kv: row " + value + " is outside the " + limit +
                   " slots that the cache has after the first");
  }
}

}  // namespace canopy::cuda
