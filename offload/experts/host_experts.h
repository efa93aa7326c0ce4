#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "offload/locked_tensors.h"
#include "offload/unit_layout.h"

namespace canopy {

/// All experts of a sweep in host memory, for copies to a device with memory of its own. Immutable
/// once loaded.
class HostExperts {
 public:
  /// Reads them. The sweep has its experts apart, and must outlive this. Throws: Error if memory is
  /// short or a file cannot be read; Stopped on request.
  HostExperts(Device& device, const SweepLayout& sweep, const Loading& loading,
              const MemoryNode& on = {});

  /// Matrix `m` of an expert, as the layout numbers both: its bytes as they are in the file.
  std::span<const std::byte> matrix(std::size_t expert, std::size_t m) const {
    const std::vector<UnitTensor>& matrices = sweep_.experts[expert].matrices;
    return {tensors_.at(expert * matrices.size() + m), matrices[m].tensor.bytes};
  }
  std::size_t bytes() const { return tensors_.bytes(); }
  static std::size_t bytes_needed(const SweepLayout& sweep);  // what bytes() will be

 private:
  const SweepLayout& sweep_;
  LockedTensors tensors_;  // by expert, then matrix: each has as many
};

}  // namespace canopy
