// Units that stay on a device and go again, between sweeps: what is lent is the file's bytes all
// the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "offload/upload/device_weights.h"
#include "tests/kernels/emulated_cuda.h"
#include "tests/offload/sweeper.h"

namespace canopy {
namespace {

using test::make_tiny;
using test::Sweeper;
using test::TinyCheckpoint;
using test::TinyShape;

/// A stack of units in device memory, and the source that they travel with.
class ChangingUploads : public ::testing::Test {
 protected:
  struct Stack {
    Buffer memory;
    std::vector<std::size_t> units;
    std::size_t used = 0;
  };
  std::unique_ptr<UploadedWeights> make(const TinyCheckpoint& tiny, const Residency& residency,
                                        std::size_t ring_units) {
    auto made = std::make_unique<UploadedWeights>(
        device_, tiny.sweep, residency, load_on_host(device_, tiny.sweep, residency, {notes_}),
        Loading{notes_});
    made->begin(least_device_ring(tiny.sweep, residency) / 2 * ring_units, notes_);
    return made;
  }
  Stack stack_for(const TinyCheckpoint& tiny) {
    return {device_.allocate(uploaded_bytes(tiny.sweep, none_resident(tiny.sweep))), {}};
  }
  static void push(const TinyCheckpoint& tiny, UploadedWeights& source, Stack& stack,
                   std::size_t unit) {
    source.keep(unit, stack.memory.data() + stack.used);
    stack.used += tiny.sweep.units[unit].slot.bytes;
    stack.units.push_back(unit);
  }
  /// Overwrites the memory that comes free.
  void pop(const TinyCheckpoint& tiny, UploadedWeights& source, Stack& stack, Stream& compute) {
    const std::size_t unit = stack.units.back(), bytes = tiny.sweep.units[unit].slot.bytes;
    stack.units.pop_back();
    source.evict(unit);
    stack.used -= bytes;
    const std::vector<std::byte> other(bytes, std::byte{0x5a});
    device_.upload(compute, stack.memory.data() + stack.used, other);
    compute.synchronize();
  }

  EmulatedCuda device_;
  const TempDir dir_;
  Notes notes_;
};

TEST_F(ChangingUploads, LendTheSameBytesWhateverComesAndGoes) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 1 + static_cast<int>(seed % 5),
                                                        .tied = seed % 3 == 0,
                                                        .bias = seed % 2 == 0,
                                                        .seed = seed,
                                                        .unequal = seed % 4 == 0});
    std::mt19937_64 random(seed);
    Residency fixed = all_resident(tiny.sweep);
    for (Tier& tier : fixed.unit)
      if (random() % 4 == 0) tier = Tier::kDevice;
    fixed.unit[random() % fixed.unit.size()] = Tier::kHost;
    Stack stack = stack_for(tiny);  // outlives what is on its way there
    const auto source = make(tiny, fixed, 2 + seed % 4 * 7);
    Sweeper sweeper(device_, tiny, *source, seed);
    Residency now = fixed;
    for (int sweep = 0; sweep < 100; ++sweep) {
      for (std::uint64_t change = random() % 4; change-- > 0;) {
        if (random() % 2 == 0 && !stack.units.empty()) {
          now.unit[stack.units.back()] = Tier::kHost;
          pop(tiny, *source, stack, sweeper.compute());
        } else if (const auto unit = next_to_rest(tiny.sweep, now, SIZE_MAX, Tier::kDevice)) {
          now.unit[*unit] = Tier::kDevice;
          push(tiny, *source, stack, *unit);
        }
      }
      if (random() % 5 == 0) {
        sweeper.run(random() % sweeper.units(), true);
        source->abandon_sweep();
      } else {
        sweeper.sweep(random() % 2 == 0);
      }
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(notes_, Notes{});
}

TEST_F(ChangingUploads, TravelOnceWhenTheyComeAndNotWhileTheyStay) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 6});
  const Residency fixed = all_resident(tiny.sweep);
  Stack stack = stack_for(tiny);  // outlives what is on its way there
  const auto source = make(tiny, fixed, 2);
  Sweeper sweeper(device_, tiny, *source);
  sweeper.sweep();
  Residency now = fixed;
  while (const auto unit = next_to_rest(tiny.sweep, now, SIZE_MAX, Tier::kDevice)) {
    now.unit[*unit] = Tier::kDevice;
    push(tiny, *source, stack, *unit);
  }
  sweeper.sweep();
  sweeper.sweep();  // by now no unit that stays is on its way any more
  const std::uint64_t one = uploaded_bytes(tiny.sweep, now), ring = source->held_bytes();
  ASSERT_GT(one, 0u) << "one unit travels";
  std::uint64_t before = source->totals().bytes;
  for (int sweep = 0; sweep < 10; ++sweep) sweeper.sweep();
  EXPECT_LE(source->totals().bytes - before, 10 * one + ring);
  while (!stack.units.empty()) pop(tiny, *source, stack, sweeper.compute());
  before = source->totals().bytes;
  for (int sweep = 0; sweep < 10; ++sweep) sweeper.sweep();
  EXPECT_GE(source->totals().bytes - before + ring, 10 * uploaded_bytes(tiny.sweep, fixed));
}

TEST_F(ChangingUploads, ChangeBetweenSweepsAlone) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 2});
  Stack stack = stack_for(tiny);  // outlives what is on its way there
  const auto source = make(tiny, all_resident(tiny.sweep), 2);
  Sweeper sweeper(device_, tiny, *source);
  const UnitLease lease = source->acquire(0, sweeper.compute());
  EXPECT_THROW(source->keep(3, stack.memory.data()), Error);
  EXPECT_THROW(source->evict(3), Error);
}

TEST_F(ChangingUploads, AFailedDeviceEndsTheSweepAndNothingHangs) {
  const TinyCheckpoint tiny = make_tiny(dir_.path(), {.layers = 3});
  for (int after = 1; after < 200; after += 7) {
    SCOPED_TRACE(after);
    EmulatedCuda device;
    const Residency fixed = all_resident(tiny.sweep);
    Stack stack{device.allocate(uploaded_bytes(tiny.sweep, none_resident(tiny.sweep))), {}};
    UploadedWeights source(device, tiny.sweep, fixed,
                           load_on_host(device, tiny.sweep, fixed, {notes_}), Loading{notes_});
    source.begin(2 * least_device_ring(tiny.sweep, fixed), notes_);
    const auto compute = device.make_stream("compute");
    device.card().fail_at(device.card().calls() + after);
    const std::string error = error_of([&] {
      for (int sweep = 0; sweep < 50; ++sweep) {
        if (sweep % 2 == 0)
          push(tiny, source, stack, 1);
        else
          source.evict(1), stack = {std::move(stack.memory), {}};
        for (std::size_t unit = 0; unit < tiny.sweep.units.size(); ++unit)
          source.acquire(unit, *compute);
        compute->synchronize();
      }
    });
    EXPECT_NE(error.find(EmulatedCard::kFailure), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace canopy
