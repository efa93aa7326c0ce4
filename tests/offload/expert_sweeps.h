#pragma once
// Sweeps that ask a source of experts for what random rows choose.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "offload/experts/expert_cache.h"
#include "tests/offload/sweeper.h"
#include "tests/temp_dir.h"

namespace canopy::test {

/// Sweeps of random routes over a mixture with experts apart, which keep what they were lent.
class ExpertSweeps : public ::testing::Test {
 protected:
  explicit ExpertSweeps(std::unique_ptr<Device> device, const char* model = "qwen3_moe")
      : device_(std::move(device)),
        sweep_(lay_out_sweep(Checkpoint::open(copy_of(model)), ExpertsAre::kApart)) {
    for (const ExpertLayout& expert : sweep_.experts) {
      if (layers_.empty() || layers_.back() != expert.layer) layers_.push_back(expert.layer);
      for (const UnitTensor& matrix : expert.matrices)
        content_.push_back(content_of(matrix.tensor));
    }
  }

  std::filesystem::path copy_of(const char* model) const {
    const std::filesystem::path to = dir_.path() / model;
    std::filesystem::copy(std::filesystem::path(CANOPY_TEST_DATA) / "model" / model, to);
    return to;
  }
  std::vector<std::byte> content_of(const TensorEntry& tensor) const {
    std::vector<std::byte> bytes(tensor.bytes);
    const int file = open(sweep_.files[static_cast<std::size_t>(tensor.file)].c_str(), O_RDONLY);
    EXPECT_EQ(pread(file, bytes.data(), bytes.size(), static_cast<off_t>(tensor.offset)),
              static_cast<ssize_t>(bytes.size()));
    close(file);
    return bytes;
  }
  std::size_t least() const { return ExpertCache::spare_slots(sweep_); }

  std::vector<std::int32_t> routes(std::size_t rows) {
    const int count = sweep_.config.experts.count, active = sweep_.config.experts.active;
    std::vector<std::int32_t> chosen;
    for (std::size_t row = 0; row < rows; ++row) {
      std::set<std::int32_t> one;
      while (std::ssize(one) < active)
        one.insert(static_cast<std::int32_t>(std::min(random_() % count, random_() % count)));
      chosen.insert(chosen.end(), one.begin(), one.end());
    }
    return chosen;
  }
  /// A layer of a sweep: copies what is lent on the stream and gives it back while the copy is
  /// still queued. `most`: experts, after which the sweep is given up; `likely`: named for the next
  /// layer.
  void run_layer(ExpertSource& cache, int layer, const std::vector<std::int32_t>& chosen,
                 std::size_t most = SIZE_MAX, const std::vector<std::int32_t>& likely = {}) {
    cache.want(layer, chosen);
    if (const auto next = std::upper_bound(layers_.begin(), layers_.end(), layer);
        next != layers_.end() && !likely.empty())
      cache.expect(*next, likely);
    for (const std::int32_t e : std::set<std::int32_t>(chosen.begin(), chosen.end())) {
      if (most-- == 0) return;
      const ExpertLease lease = cache.acquire(layer, e, *compute_, {});
      const std::size_t index = index_of(layer, e);
      const std::vector<UnitTensor>& matrices = sweep_.experts[index].matrices;
      for (std::size_t i = 0; i < matrices.size(); ++i) {
        const WeightView view = matrices[i].role == TensorRole::kExpertGate ? (*lease).gate
                                : matrices[i].role == TensorRole::kExpertUp ? (*lease).up
                                                                            : (*lease).down;
        auto& [of, bytes] = received_.emplace_back(index * 3 + i, view.bytes());
        device_->download(*compute_, bytes, view.payload());
      }
      ++asked_;
    }
  }
  void run_sweep(ExpertSource& cache, std::size_t rows) {
    for (const int layer : layers_) run_layer(cache, layer, routes(rows));
  }
  /// A sweep that names, at each layer, what the next one is asked for, less some and with others.
  void run_foretold_sweep(ExpertSource& cache, std::size_t rows, std::size_t layers = SIZE_MAX) {
    std::vector<std::int32_t> next = routes(rows);
    for (std::size_t i = 0; i < std::min(layers, layers_.size()); ++i) {
      const std::vector<std::int32_t> chosen = std::exchange(next, routes(rows));
      std::vector<std::int32_t> likely = routes(1);
      for (const std::int32_t e : next)
        if (random_() % 2 == 0) likely.push_back(e);
      std::shuffle(likely.begin(), likely.end(), random_);
      run_layer(cache, layers_[i], chosen, i + 1 == layers ? random_() % 3 : SIZE_MAX, likely);
    }
  }
  void expect_right_bytes() {
    compute_->synchronize();
    for (const auto& [of, bytes] : received_) ASSERT_TRUE(bytes == content_[of]);
    received_.clear();
  }
  std::size_t index_of(int layer, std::int32_t expert) const {
    std::size_t i = 0;
    while (sweep_.experts[i].layer != layer || sweep_.experts[i].expert != expert) ++i;
    return i;
  }

  const TempDir dir_;
  const std::unique_ptr<Device> device_;
  const SweepLayout sweep_;
  std::vector<int> layers_;
  std::vector<std::vector<std::byte>> content_;  // by expert, then matrix
  const std::unique_ptr<Stream> compute_ = device_->make_stream("compute");
  std::mt19937 random_{1};
  std::list<std::pair<std::size_t, std::vector<std::byte>>> received_;
  std::uint64_t asked_ = 0;
};

}  // namespace canopy::test
