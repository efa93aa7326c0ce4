#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/cuda/mixture.h"
#include "kernels/device.h"

namespace canopy::cuda {

/// The rows that each expert of a mixture computes, on the host, which launches products for those
/// alone. Any thread, each stream by one.
class ExpertRoutes {
 public:
  /// Waits for the experts that a stream's rows chose. Shapes: expert [n, active] i32.
  void read(Device& device, Stream& stream, const TensorView& expert) {
    const std::int64_t active = expert.dim(1);
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(expert.dim(0) * active));
    device.download(stream, std::as_writable_bytes(std::span(chosen)), expert.data());
    stream.synchronize();
    const std::lock_guard lock(mutex_);
    std::vector<std::vector<ExpertRow>>& rows = rows_[&stream];
    for (auto& of_expert : rows) of_expert.clear();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const auto one = static_cast<std::size_t>(chosen[i]);
      if (rows.size() <= one) rows.resize(one + 1);
      rows[one].push_back({static_cast<std::int32_t>(static_cast<std::int64_t>(i) / active),
                           static_cast<std::int32_t>(i)});
    }
  }
  /// Of the rows that were read last.
  std::vector<ExpertRow> rows_of(const Stream& stream, int expert) {
    const std::lock_guard lock(mutex_);
    const std::vector<std::vector<ExpertRow>>& rows = rows_[&stream];
    const auto one = static_cast<std::size_t>(expert);
    return one < rows.size() ? rows[one] : std::vector<ExpertRow>();
  }

 private:
  std::mutex mutex_;
  std::map<const Stream*, std::vector<std::vector<ExpertRow>>> rows_;  // by expert
};

}  // namespace canopy::cuda
