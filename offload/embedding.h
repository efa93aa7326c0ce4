#pragma once
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "offload/embedding_table.h"
#include "offload/io/read_engine.h"
#include "offload/io/read_pump.h"
#include "offload/unit_layout.h"
#include "src/machine/host_slab.h"

namespace canopy {

/// A table in memory that the device reads.
class EmbeddingLookup final : public EmbeddingTable {
 public:
  EmbeddingLookup(Device& device, WeightView table);
  ~EmbeddingLookup() override;  // waits for the last lookup, which still reads the ids

  void look_up(std::span<const TokenId> ids, Stream& compute, TensorView out) override;
  WeightView on_device() const override { return table_; }
  std::size_t held_bytes() const override { return ids_on_device_.bytes(); }
  static std::size_t bytes_needed() { return kIds * sizeof(TokenId); }  // what held_bytes() will be

 private:
  static constexpr std::size_t kIds = 4096;  // that there is room for at once
  Device& device_;
  const WeightView table_;
  std::vector<TokenId> ids_;  // of the last lookup, until `read_` is reached
  Buffer ids_on_device_;      // those of one batch
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

/// A table in host memory that the device does not read. Bit for bit the same rows.
class HostEmbedding final : public EmbeddingTable {
 public:
  HostEmbedding(Device& device, const TensorEntry& entry, WeightView table);
  void look_up(std::span<const TokenId> ids, Stream& compute, TensorView out) override;
  std::size_t held_bytes() const override { return upload_.held_bytes(); }

 private:
  const WeightView table_;
  EmbeddingUpload upload_;
};

/// A table that stays on disk: reads the rows it is asked for. Bit for bit the same rows.
class EmbeddingReader final : public EmbeddingTable {
 public:
  /// `engine` was opened on the sweep's files. Throws Error if memory is short.
  EmbeddingReader(Device& device, const SweepLayout& sweep, std::unique_ptr<ReadEngine> engine);

  void look_up(std::span<const TokenId> ids, Stream& compute, TensorView out) override;
  std::size_t held_bytes() const override { return staging_.size() + upload_.held_bytes(); }
  std::uint64_t disk_bytes() const override { return disk_bytes_; }
  static std::size_t bytes_needed(const TensorEntry& table);  // what held_bytes() will be

 private:
  const TensorEntry table_;
  std::unique_ptr<ReadEngine> engine_;
  ReadPump pump_;
  HostSlab staging_;  // rows as read
  EmbeddingUpload upload_;
  std::atomic<std::uint64_t> disk_bytes_ = 0;
};

}  // namespace canopy
