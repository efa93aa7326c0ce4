#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device.h"
#include "kernels/tensor.h"
#include "kernels/weight_view.h"
#include "src/base/types.h"

namespace canopy {

/// The rows of a model's embedding, wherever its table lies.
class EmbeddingTable {
 public:
  virtual ~EmbeddingTable() = default;

  /// out_i = f32 row of id_i. Shapes: out [n, dim] f32. May block the host until rows are read, or
  /// until the lookup before has left its buffers. One thread at a time. Throws Error if an id is
  /// outside the table or a read failed.
  virtual void look_up(std::span<const TokenId> ids, Stream& compute, TensorView out) = 0;
  /// The table, where the device reads it itself; else empty.
  virtual WeightView on_device() const { return {}; }

  virtual std::size_t held_bytes() const = 0;             // in memory, next to the table
  virtual std::uint64_t disk_bytes() const { return 0; }  // read so far; from any thread
};

}  // namespace canopy
