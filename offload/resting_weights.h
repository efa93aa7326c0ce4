#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "offload/io/read_pump.h"
#include "offload/io/slab_pins.h"
#include "offload/residency.h"
#include "offload/unit_layout.h"
#include "offload/weight_source.h"
#include "src/machine/host_slab.h"

namespace canopy {

using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t all_bytes)>;

/// The weights that stay in host memory for a whole run.
/// Immutable once loaded.
class RestingWeights {
 public:
  /// Reads them through the pump, in file order; beside them, one unit's vectors are held for a
  /// moment. The matrices are locked for copies to the device, and lie `on` a NUMA
  /// node while it has room. Throws: Error as the pump does;
  /// Stopped on request.
  RestingWeights(Device& device, const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                 const Residency& residency, ReadPump& pump, const LoadProgress& progress,
                 std::stop_token stop, Notes& notes, const MemoryNode& on = {});

  /// Of unit i: its vectors [n] f32, and its matrices if they rest; other fields are empty.
  const UnitWeights& unit(std::size_t i) const { return units_[i]; }
  ConstTensorView table() const { return table_; }  // [vocab, dim]; empty unless it rests
  std::size_t bytes() const { return matrices_.size() + vectors_.size(); }

  /// What bytes() will be. Pure.
  static std::size_t bytes_needed(const Checkpoint& checkpoint, std::span<const UnitLayout> units,
                                  const Residency& residency);

 private:
  HostSlab matrices_, vectors_;
  SlabPins pins_;  // of the matrices
  std::vector<UnitWeights> units_;
  ConstTensorView table_;
};

}  // namespace canopy
