#pragma once
#include <cstdint>
#include <span>

#include "kernels/ops.h"
#include "src/base/model_config.h"

namespace canopy {

/// Keys and values of one sequence on one device. Slots [0, length()) are committed;
/// a forward over nodes [f, f + n) writes slots [length() + f, length() + f + n); commit keeps a
/// path.
class KvCache {
 public:
  KvCache(Device& device, const ModelConfig& config, int capacity, DType dtype);
  int length() const { return length_; }
  int capacity() const { return capacity_; }
  KvView layer(int index) const;

  /// Moves the slots of `path` (node ids, root first) to the front of the scratch
  /// area and extends the committed length by path.size(). Enqueues on `stream`.
  void commit(std::span<const NodeId> path, Stream& stream);
  void truncate(int length);  // forget the tail; no device work

 private:
  Device* device_;
  Buffer storage_;
  int length_ = 0, capacity_ = 0;
};

}  // namespace canopy
