#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/device.h"
#include "offload/streamer.h"
#include "src/base/error.h"
#include "src/base/formats/weight_format.h"
#include "tests/checkpoint/tiny_checkpoint.h"
#include "tests/error_of.h"
#include "tests/offload/faulty_reads.h"

namespace canopy::test {

inline std::function<std::unique_ptr<ReadEngine>(std::unique_ptr<ReadEngine>)> with(
    Faults faults, std::uint64_t seed) {
  return [=](std::unique_ptr<ReadEngine> engine) {
    return std::make_unique<FaultyReads>(std::move(engine), faults, seed);
  };
}

/// Plays the forward pass: copies each unit's weights out on the compute stream, gives the lease
/// back while the copy is still queued, and compares at the end of the sweep.
class Sweeper {
 public:
  Sweeper(Device& device, const TinyCheckpoint& tiny, WeightSource& source, std::uint64_t seed = 0)
      : device_(device),
        source_(source),
        layouts_(tiny.sweep.units),
        compute_(device.make_stream("compute")),
        random_(seed),
        ballast_(device.allocate(1 << 20)),
        scratch_(1 << 20) {
    for (const UnitLayout& layout : layouts_) {
      const Unit& unit = layout.unit;
      for (const UnitTensor& matrix : layout.matrices) {
        std::vector<std::byte> bytes = tiny.content.at(matrix.tensor.name);
        if (unit.kind == UnitKind::kHead) {
          const auto row = row_bytes(matrix.tensor.dtype, matrix.tensor.shape[1]);
          const auto begin = bytes.begin() + unit.first_row * static_cast<std::ptrdiff_t>(row);
          bytes = {begin, begin + unit.rows * static_cast<std::ptrdiff_t>(row)};
        }
        expected_.push_back(std::move(bytes));
      }
      for (const UnitTensor& vector : layout.vectors) {
        std::vector<float> values(static_cast<std::size_t>(vector.tensor.shape[0]));
        dequantize_row(vector.tensor.dtype, tiny.content.at(vector.tensor.name).data(), values);
        const auto* const data = reinterpret_cast<const std::byte*>(values.data());
        expected_.emplace_back(data, data + values.size() * sizeof(float));
      }
    }
    for (const auto& bytes : expected_) received_.emplace_back(bytes.size());
  }
  ~Sweeper() { compute_->synchronize(); }

  /// Acquires units [0, count).
  void run(std::size_t count, bool random_delays = false) {
    std::size_t tensor = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const UnitLease lease = source_.acquire(i, *compute_);
      if (random_delays) delay();
      const auto receive = [&](const std::byte* data, std::size_t bytes) {
        std::vector<std::byte>& to = received_[tensor++];
        ASSERT_EQ(bytes, to.size()) << "tensor " << tensor - 1 << " of the sweep";
        device_.download(*compute_, to, data);
      };
      for (const UnitTensor& matrix : layouts_[i].matrices) {
        const WeightView view = lease->matrix(matrix.role);
        receive(view.payload(), view.bytes());
      }
      for (const UnitTensor& vector : layouts_[i].vectors) {
        const ConstTensorView view = lease->vector(vector.role);
        receive(view.data(), view.bytes());
      }
    }
    compute_->synchronize();
    for (std::size_t i = 0; i < tensor; ++i) {
      ASSERT_TRUE(received_[i] == expected_[i]) << "tensor " << i << " of the sweep";
      std::fill(received_[i].begin(), received_[i].end(), std::byte{0});
    }
  }
  void sweep(bool random_delays = false) { run(layouts_.size(), random_delays); }
  std::size_t units() const { return layouts_.size(); }
  Stream& compute() { return *compute_; }

 private:
  /// Now the host is late, now the device.
  void delay() {
    const std::uint64_t kind = random_() % 8;
    if (kind == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
    if (kind == 1) device_.download(*compute_, scratch_, ballast_.data());
  }

  Device& device_;
  WeightSource& source_;
  const std::vector<UnitLayout> layouts_;
  const std::unique_ptr<Stream> compute_;
  std::mt19937_64 random_;
  Buffer ballast_;
  std::vector<std::byte> scratch_;
  std::vector<std::vector<std::byte>> expected_, received_;
};

/// Any units at rest but one (seed 0: none), the table by chance, room for `units` of the largest.
struct Place {
  Residency residency;
  std::size_t ring_bytes = 0;

  Place(const TinyCheckpoint& tiny, std::uint64_t seed, std::size_t units) {
    const std::vector<UnitLayout>& layouts = tiny.sweep.units;
    residency = none_resident(tiny.sweep);
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i < layouts.size(); ++i)
      if (seed != 0 && random() % 3 == 0) residency.unit[i] = Tier::kHost;
    residency.unit[random() % layouts.size()] = Tier::kDisk;
    residency.table = random() % 2 == 0 ? Tier::kHost : Tier::kDisk;
    ring_bytes = least_ring(tiny.sweep, residency) / 2 * units;
  }
};

/// Returns once a streamer's reader waits for room, with all its reads answered. Its name is the
/// thread's: one streamer at a time.
inline void wait_until_full(const ReadCount& reads) {
  const int reader = thread_named("reader");
  for (std::uint64_t asked = reads.asked + 1; asked != reads.asked;) {
    asked = reads.asked;
    while (reads.answered != asked && reads.asked == asked) std::this_thread::yield();
    wait_until_asleep(reader);
  }
}

class StreamerFixture : public testing::Test {
 protected:
  /// `tiny` must outlive it.
  std::unique_ptr<Streamer> make(const TinyCheckpoint& tiny, StreamerOptions options = {},
                                 std::uint64_t residency = 0, std::size_t units = 2) {
    const Place place(tiny, residency, units);
    options.ring_bytes = place.ring_bytes;
    return std::make_unique<Streamer>(*device_, tiny.sweep, place.residency, options);
  }

  const std::unique_ptr<Device> device_ = make_device({.kind = "cpu", .threads = 1});
  const TempDir dir_;
};

}  // namespace canopy::test
