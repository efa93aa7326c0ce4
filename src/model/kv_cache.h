#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "src/checkpoint/model_config.h"

namespace canopy {

/// How keys and values rest in the cache: f32, f16 or bf16 each.
struct KvTypes {
  DType k = DType::kF32, v = DType::kF32;
};

/// Keys and values of one sequence on one device. Slots [0, length()) are committed; behind them is
/// scratch: a forward over nodes [f, f + n) writes slots [length() + f, length() + f + n), and
/// commit keeps a path of them. One thread at a time; device work is enqueued on the stream given,
/// always the same one.
class KvCache {
 public:
  /// Room for `capacity` slots, scratch included. Throws Error if the device is full.
  KvCache(Device& device, const ModelConfig& config, int capacity, KvTypes types);
  /// What the constructor will hold. Pure.
  static std::size_t bytes_needed(const ModelConfig& config, int capacity, KvTypes types);
  static constexpr int kAllocations = 2;  // that hold it

  int length() const { return length_; }
  int capacity() const { return capacity_; }
  KvView layer(int index) const;

  /// Moves the slots of `path` (node ids counted from length(), ascending) to the front of the
  /// scratch area and extends the committed length by path.size(). A path 0, 1, 2, ... moves
  /// nothing.
  void commit(std::span<const NodeId> path, Stream& stream);
  /// Forgets the tail: no device work. Throws Error if `length` is more than is committed.
  void truncate(int length);

 private:
  Device* device_;
  int layers_, kv_heads_, head_dim_, capacity_, length_ = 0;
  KvTypes types_;
  Buffer storage_, path_;
  std::vector<std::int32_t> host_path_;  // lives until path_uploaded_ is reached
  std::unique_ptr<Event> path_uploaded_;
};

}  // namespace canopy
