#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "offload/experts/expert_cache.h"
#include "tests/convert/tiny_outputs.h"

namespace canopy::test {

/// Three sweeps of one text, so that a cache has experts of the sweep before.
inline std::vector<float> logits_of_sweeps(Device& device, const ModelConfig& config,
                                           WeightSource& weights) {
  std::vector<float> all;
  for (int sweep = 0; sweep < 3; ++sweep) {
    const std::vector<float> logits = logits_of(device, config, weights);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

/// Expects the logits of `model`, bit for bit, of a mixture whose experts are in memory, travel
/// with their layers or come out of a cache.
inline void expect_logits_of(const Checkpoint& model, const Checkpoint& small) {
  const auto device = make_device({.threads = 2});
  const ModelConfig& config = model.config();
  Notes notes;
  const auto of_plain = load_resident(*device, lay_out_sweep(model), {notes});
  const std::vector<float> expected = logits_of_sweeps(*device, config, *of_plain);
  const auto resident = load_resident(*device, lay_out_sweep(small), {notes});
  EXPECT_EQ(logits_of_sweeps(*device, config, *resident), expected);

  const SweepLayout whole = lay_out_sweep(small), apart = lay_out_sweep(small, ExpertsAre::kApart);
  const Residency none = none_resident(whole);
  Streamer streamer(*device, whole, none, {.ring_bytes = least_ring(whole, none)});
  EXPECT_EQ(logits_of_sweeps(*device, config, streamer), expected);
  for (const std::size_t stay : {std::size_t{0}, apart.experts.size() / 3, apart.experts.size()})
    for (const bool streams : {false, true}) {
      const Residency residency = streams ? none_resident(apart) : all_resident(apart);
      std::unique_ptr<WeightSource> units;
      if (streams)
        units = std::make_unique<Streamer>(
            *device, apart, residency, StreamerOptions{.ring_bytes = least_ring(apart, residency)});
      else
        units = load_on_host(*device, apart, residency, {notes});
      WithExperts weights(
          std::move(units),
          std::make_unique<ExpertCache>(*device, apart, ExpertCache::spare_slots(apart) + stay,
                                        StreamerOptions{.checksums = true}));
      EXPECT_EQ(logits_of_sweeps(*device, config, weights), expected)
          << stay << " stay" << (streams ? ", units travel" : "");
    }
}

}  // namespace canopy::test
