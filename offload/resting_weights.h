#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "kernels/ops.h"
#include "offload/host_memory.h"
#include "offload/read_pump.h"
#include "offload/unit_layout.h"
#include "offload/weight_source.h"

namespace canopy {

using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t all_bytes)>;

/// Which matrices rest in memory. The vectors (norms, biases) always do.
enum class Rest { kTables, kAll };  // embedding table and head; every matrix

/// The weights that stay in memory for a whole run, in memory that the device reads directly.
/// Immutable once loaded.
class RestingWeights {
 public:
  /// Reads them through the pump, in file order; beside them, one unit's vectors are held for a
  /// moment. Throws: Error as the pump does; Stopped on request.
  RestingWeights(const Checkpoint& checkpoint, std::span<const UnitLayout> units, Rest rest,
                 ReadPump& pump, const LoadProgress& progress, std::stop_token stop);

  /// Of unit i: its vectors [n] f32, and its matrices if they rest; other fields are empty.
  const UnitWeights& unit(std::size_t i) const { return units_[i]; }
  ConstTensorView table() const { return table_; }  // [vocab, dim]
  std::size_t bytes() const { return matrices_.size() + vectors_.size(); }

  /// What bytes() will be. Pure.
  static std::size_t bytes_needed(const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                                  Rest rest);

 private:
  HostSlab matrices_, vectors_;
  std::vector<UnitWeights> units_;
  ConstTensorView table_;
};

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

}  // namespace canopy
