#pragma once
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "offload/io/read_engine.h"
#include "offload/io/read_pump.h"
#include "offload/unit_layout.h"
#include "src/machine/host_slab.h"

namespace canopy {

/// Looks rows up in an embedding table in memory that the device reads. One thread at a time.
class EmbeddingLookup {
 public:
  EmbeddingLookup(Device& device, WeightView table);
  ~EmbeddingLookup();  // waits for the last lookup, which still reads the ids

  /// out_i = f32 row of id_i. Shapes: out [n, dim] f32. Waits on the host for the lookup before.
  /// Throws Error if an id is outside the table.
  void operator()(std::span<const TokenId> ids, Stream& compute, TensorView out);

  WeightView table() const { return table_; }

  std::size_t held_bytes() const { return on_device_.bytes(); }
  static std::size_t bytes_needed() { return kIds * sizeof(TokenId); }  // what held_bytes() will be

 private:
  static constexpr std::size_t kIds = 4096;  // that there is room for at once
  Device& device_;
  const WeightView table_;
  std::vector<TokenId> ids_;  // of the last lookup, until `read_` is reached
  Buffer on_device_;          // those of one batch
  std::unique_ptr<Event> read_;
};

/// Brings rows to the device as f32, a batch at a time. One thread at a time.
class EmbeddingUpload {
 public:
  /// It takes rows of a table like this one. Throws Error if memory is short.
  EmbeddingUpload(Device& device, const TensorEntry& table);
  ~EmbeddingUpload();  // waits for the last copy

  static constexpr std::size_t kBatch = 64;  // rows: as many reads as keep a disk busy
  /// rows[i] is the row, as the table has it, that becomes row i of out [n, dim] f32; n <= kBatch.
  void operator()(std::span<const StoredRow> rows, Stream& compute, TensorView out);

  std::size_t held_bytes() const { return rows_.size(); }
  static std::size_t bytes_needed(const TensorEntry& table);  // what held_bytes() will be

 private:
  Device& device_;
  const DType dtype_;
  const std::size_t columns_;
  HostSlab rows_;  // as f32
  std::unique_ptr<Event> copied_;
};

/// The lookup for a table in host memory that the device does not read. Bit for bit the same. One
/// thread at a time.
class HostEmbedding {
 public:
  HostEmbedding(Device& device, const TensorEntry& entry, WeightView table);
  void operator()(std::span<const TokenId> ids, Stream& compute, TensorView out);
  std::size_t held_bytes() const { return upload_.held_bytes(); }

 private:
  const WeightView table_;
  EmbeddingUpload upload_;
};

/// The lookup for a table that stays on disk: reads the rows it is asked for. Bit for bit the same.
/// One thread at a time.
class EmbeddingReader {
 public:
  /// `engine` was opened on the sweep's files. Throws Error if memory is short.
  EmbeddingReader(Device& device, const SweepLayout& sweep, std::unique_ptr<ReadEngine> engine);

  /// See EmbeddingLookup; blocks until the rows were read. Throws Error if a read failed.
  void operator()(std::span<const TokenId> ids, Stream& compute, TensorView out);

  std::uint64_t disk_bytes() const { return pump_.disk_bytes(); }  // since construction
  std::size_t held_bytes() const { return staging_.size() + upload_.held_bytes(); }
  static std::size_t bytes_needed(const TensorEntry& table);  // what held_bytes() will be

 private:
  const TensorEntry table_;
  std::unique_ptr<ReadEngine> engine_;
  ReadPump pump_;
  HostSlab staging_;  // rows as read
  EmbeddingUpload upload_;
};

}  // namespace canopy
