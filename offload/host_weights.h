#pragma once
#include <cstddef>
#include <vector>

#include "offload/io/read_pump.h"
#include "offload/loading.h"
#include "offload/locked_tensors.h"
#include "offload/residency.h"
#include "offload/unit_layout.h"
#include "offload/weight_source.h"
#include "src/machine/host_slab.h"

namespace canopy {

/// The weights that stay in host memory for a whole run.
/// Immutable once loaded.
class HostWeights {
 public:
  /// Reads them through the pump, in file order; next to them, one unit's vectors are held for a
  /// moment. The matrices are locked for copies to the device, and lie `on` a NUMA node while it
  /// has room. Throws: Error as the pump does; Stopped on request.
  HostWeights(Device& device, const SweepLayout& sweep, const Residency& residency, ReadPump& pump,
              const Loading& loading, const MemoryNode& on = {});

  /// Unit i has its vectors [n] f32, and its matrices if they rest; other fields are empty.
  const UnitWeights& unit(std::size_t i) const { return units_[i]; }
  WeightView table() const { return table_; }  // [vocab, dim]; empty unless it rests
  std::size_t bytes() const { return matrices_.bytes() + vectors_.size(); }

  /// Predicts bytes(). Pure.
  static std::size_t bytes_needed(const SweepLayout& sweep, const Residency& residency);

 private:
  LockedTensors matrices_;
  HostSlab vectors_;
  std::vector<UnitWeights> units_;
  WeightView table_;
};

}  // namespace canopy
