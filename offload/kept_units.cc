#include "offload/kept_units.h"

#include <algorithm>

namespace canopy {

void KeptUnits::load(const Residency& residency, ReadPump& pump, const Loading& loading) {
  std::size_t all = 0, done = 0;
  try {
    for (std::size_t i = 0; i < slabs_.size(); ++i) {
      const ReadLayout& read = sweep_.units[i].read;
      if (residency.unit[i] != Tier::kHost || read.slab_bytes == 0) continue;
      slabs_[i] = HostSlab(read.slab_bytes, {}, Touch::kAsFilled);
      pump.add(read.extents, slabs_[i].data(), kAtRest);
      all += read.slab_bytes;
    }
    while (!pump.idle()) {
      loading.check_in(done, all);
      for (const ReadPump::Arrival& arrival : pump.step()) done += arrival.bytes.size();
    }
  } catch (...) {
    pump.drain();
    throw;
  }
  if (all > 0) loading.check_in(all, all);
}

void KeptUnits::keep(std::size_t unit, const std::byte* slot) {
  const std::size_t bytes = sweep_.units[unit].read.slab_bytes;
  HostSlab slab(bytes, {}, Touch::kAsFilled);
  std::copy_n(slot, bytes, slab.data());
  slabs_[unit] = std::move(slab);
}

void KeptUnits::add_matrices(std::size_t unit, UnitWeights& weights) const {
  add_matrices_at(sweep_.units[unit], slabs_[unit].data(), weights);
}

std::size_t KeptUnits::bytes() const {
  std::size_t bytes = 0;
  for (const HostSlab& slab : slabs_) bytes += slab.size();
  return bytes;
}

}  // namespace canopy
