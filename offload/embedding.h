#pragma once
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "offload/checkpoint.h"
#include "offload/host_memory.h"
#include "offload/read_engine.h"
#include "offload/read_pump.h"

namespace canopy {

/// Looks rows up in an embedding table that rests in memory. One thread at a time.
class EmbeddingLookup {
 public:
  EmbeddingLookup(Device& device, ConstTensorView table);
  ~EmbeddingLookup();  // waits for the last lookup, which still reads the ids

  /// out_i = f32 row of id_i. Shapes: out [n, dim] f32. Waits on the host for the lookup before.
  /// Throws Error if an id is outside the table.
  void operator()(std::span<const TokenId> ids, Stream& compute, TensorView out);

 private:
  Ops& ops_;
  const ConstTensorView table_;
  std::vector<TokenId> ids_;  // of the last lookup, until `read_` is reached
  std::unique_ptr<Event> read_;
};

/// The same from a table that stays on disk: reads the rows it is asked for, a batch at a time,
/// and brings them to the device as f32. Bit for bit what the lookup gives. One thread at a time.
class EmbeddingReader {
 public:
  /// `engine` was opened on the checkpoint's files. Throws Error if memory is short.
  EmbeddingReader(Device& device, const Checkpoint& checkpoint, std::unique_ptr<ReadEngine> engine);
  ~EmbeddingReader();  // waits for the last copy to the device

  /// As EmbeddingLookup's; blocks until the rows were read. Throws Error if a read failed.
  void operator()(std::span<const TokenId> ids, Stream& compute, TensorView out);

  std::uint64_t disk_bytes() const { return pump_.disk_bytes(); }  // since construction
  std::size_t held_bytes() const { return staging_.size() + rows_.size(); }
  static std::size_t bytes_needed(const Checkpoint& checkpoint);  // what held_bytes() will be

 private:
  Device& device_;
  const TensorEntry table_;
  std::unique_ptr<ReadEngine> engine_;
  ReadPump pump_;
  HostSlab staging_, rows_;  // as read; as f32
  std::unique_ptr<Event> copied_;
};

}  // namespace canopy
