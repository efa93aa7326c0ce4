#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "offload/experts/expert_source.h"
#include "offload/locked_tensors.h"
#include "offload/unit_layout.h"

namespace canopy {

/// All experts of a sweep in host memory, for copies to a device with memory of its own.
class HostExperts final : public ExpertSource {
 public:
  /// Reads them. The sweep has its experts apart, and must outlive this. Throws: Error if memory is
  /// short or a file cannot be read; Stopped on request.
  HostExperts(Device& device, const SweepLayout& sweep, const Loading& loading,
              const MemoryNode& on = {});

  void want(int, std::span<const std::int32_t>) override {}
  bool may_lack(int) const override { return false; }
  void expect(int, std::span<const std::int32_t>) override {}
  bool is_there(int, int) const override { return true; }
  ExpertLease acquire(int layer, int expert, Stream& copy, const std::stop_token&) override;
  void keep_rows(std::span<const std::int32_t>) override {}
  void abandon_sweep() noexcept override {}

  std::size_t bytes() const { return tensors_.bytes(); }
  static std::size_t bytes_needed(const SweepLayout& sweep);  // what bytes() will be

 private:
  void give_back(std::size_t, Stream&) noexcept override {}

  const SweepLayout& sweep_;
  const LockedTensors tensors_;           // by expert, then matrix: each has as many
  const std::vector<std::size_t> first_;  // of each layer's experts among all
};

}  // namespace canopy
