#pragma once
#include <cstddef>
#include <vector>

#include "offload/io/read_pump.h"
#include "offload/loading.h"
#include "offload/residency.h"
#include "offload/unit_layout.h"
#include "src/machine/host_slab.h"

namespace canopy {

/// Units whose matrices stay in host memory until that is wanted for something else: each has a
/// slab of its own. One thread at a time.
class KeptUnits {
 public:
  explicit KeptUnits(const SweepLayout& sweep) : sweep_(sweep), slabs_(sweep.units.size()) {}

  /// Reads the units of tier kHost through the pump, in the order of the sweep. Throws: Error as
  /// the pump does; Stopped on request.
  void load(const Residency& residency, ReadPump& pump, const Loading& loading);
  /// Keeps a copy of a unit that lies in a slot of the ring. Throws Error if memory is short.
  void keep(std::size_t unit, const std::byte* slot);
  void free(std::size_t unit) { slabs_[unit] = HostSlab(); }

  bool has(std::size_t unit) const { return slabs_[unit].size() > 0; }
  /// Adds the matrices of a unit that is here.
  void add_matrices(std::size_t unit, UnitWeights& weights) const;
  std::size_t bytes() const;  // of all that are here

 private:
  const SweepLayout& sweep_;
  std::vector<HostSlab> slabs_;  // by unit
};

}  // namespace canopy
