#pragma once
// A made-up machine with a made-up model, for tests of the planner.
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/planner.h"

namespace canopy::testing {

constexpr int kLayers = 20;

inline Curve line(double at_0, double per_row) {
  return Curve::fit(
      std::vector<Sample>{{0, Seconds(at_0)}, {1000, Seconds(at_0 + 1000 * per_row)}});
}

/// A layer takes 2 ms and .2 ms for each row; a level of the draft 10 ms; the link brings 1 GB/s.
inline HardwareProfile made_up_profile() {
  HardwareProfile p{.machine = "made up",
                    .target = "target",
                    .draft = "draft",
                    .version = "version",
                    .date = "2026-01-01",
                    .code = "code"};
  p.link_bytes_per_second = 1e9;
  p.embed = line(1e-4, 1e-6);
  p.layers[0].attention = line(5e-4, 5e-5);
  p.layers[0].mlp = line(1.5e-3, 1.5e-4);
  p.head = line(3e-3, 3e-4);
  p.layers[0].context = {Seconds(3e-8), Seconds(1e-8)};
  p.verify = Seconds(1e-4);
  p.drafting = {line(9e-3, 1e-4), line(1e-2, 1e-4), {Seconds(2e-8), Seconds(1e-8)}};
  return p;
}

/// Layers of attention and MLP, then the head, together `sweep_bytes` bytes that travel.
inline WeightPlan made_up_weights(std::uint64_t sweep_bytes) {
  WeightPlan weights;
  const std::uint64_t unit = sweep_bytes / (2 * kLayers + 1);
  for (int layer = 0; layer < kLayers; ++layer) {
    weights.units.push_back({UnitKind::kAttention, 1, unit});
    weights.units.push_back({UnitKind::kMlp, 1, unit});
  }
  weights.units.push_back({UnitKind::kHead, 1, unit});
  weights.ring_bytes = 4 * unit;
  return weights;
}

/// The same in a budget: a node takes a megabyte; units rest, evenly spread, as far as they fit
/// next to the ring.
inline std::optional<WeightPlan> lay_out_in(std::uint64_t memory, std::uint64_t model,
                                            const TreeRoom& room, std::uint64_t ring) {
  WeightPlan weights = made_up_weights(model);
  const auto nodes = static_cast<std::uint64_t>(room.nodes) << 20;
  const std::uint64_t unit = weights.units.front().bytes;
  weights.ring_bytes = std::max(ring, 4 * unit);
  if (memory < nodes + 2 * unit) return std::nullopt;
  if (memory < nodes + weights.ring_bytes) weights.ring_bytes = memory - nodes;
  const std::uint64_t left = memory - nodes - weights.ring_bytes;
  const std::size_t rest =
      std::min<std::size_t>(left / std::max<std::uint64_t>(unit, 1), weights.units.size());
  weights.resident_bytes = rest * unit;
  for (std::size_t i = 0, taken = 0; i < weights.units.size(); ++i)
    if ((i + 1) * rest / weights.units.size() > taken) {
      weights.units[i].bytes = 0;
      ++taken;
    }
  return weights;
}

}  // namespace canopy::testing
