#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "offload/experts/expert_policy.h"
#include "offload/experts/route_trace.h"
#include "offload/unit_layout.h"

namespace canopy {

/// Experts that the layers of a sweep ask for, and those that stay in memory for the next ones: a
/// cache's book, without its memory. Experts are numbered as in the sweep's layout. One thread at a
/// time.
class ExpertChoices {
 public:
  /// `staying`: experts of all layers that stay. The sweep has its experts apart, and must outlive
  /// this, as must the trace, which may be null.
  ExpertChoices(const SweepLayout& sweep, std::size_t staying, RouteTrace* trace);

  std::size_t index_of(int layer, std::int32_t expert) const {
    return first_.at(static_cast<std::size_t>(layer)) + static_cast<std::size_t>(expert);
  }

  struct Wanted {
    std::vector<std::size_t> experts;  // in the order of their use
    std::vector<std::size_t> leaving;  // that stayed until now; none of these
  };
  /// Enters what the rows of a sweep chose at a layer, as ExpertSource::want() has it.
  Wanted want(int layer, std::span<const std::int32_t> chosen);
  /// Changes how many experts of all layers stay, between two sweeps. Returns those that leave.
  std::vector<std::size_t> set_staying(std::size_t count);
  bool stays(std::size_t expert) const { return policy_.stays(layer_of(expert), number(expert)); }
  /// The expert has not come after all.
  void drop(std::size_t expert) { policy_.drop(layer_of(expert), number(expert)); }
  /// Names the rows of the sweep that became text: ExpertSource::keep_rows().
  void keep_rows(std::span<const std::int32_t> rows) { kept_.emplace(rows.begin(), rows.end()); }
  void abandon_sweep() noexcept;

  std::uint64_t hits() const { return hits_; }
  std::uint64_t misses() const { return misses_; }

 private:
  std::size_t layer_of(std::size_t expert) const { return expert / per_layer_; }  // of mixtures
  std::int32_t number(std::size_t expert) const {
    return static_cast<std::int32_t>(expert % per_layer_);
  }
  void credit_sweep();

  const std::size_t per_layer_, active_;
  const std::vector<std::size_t> first_;  // of each layer's experts among all; of others, unused
  ExpertPolicy policy_;
  std::vector<std::vector<std::int32_t>> routes_;  // of the sweep so far, by mixture layer
  std::optional<std::vector<std::int32_t>> kept_;  // rows of it; none: all
  std::size_t routed_ = 0;                         // layers of the sweep so far
  std::uint64_t hits_ = 0, misses_ = 0;
  RouteTrace* const trace_;
};

}  // namespace canopy
