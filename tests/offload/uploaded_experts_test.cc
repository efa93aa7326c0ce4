// Experts on a device with memory of its own have the bytes of the file, and are copied when they
// are missing and at no other time.
#include "offload/experts/uploaded_experts.h"

#include <optional>

#include "offload/experts/host_experts.h"
#include "tests/error_of.h"
#include "tests/kernels/emulated_cuda.h"
#include "tests/offload/expert_sweeps.h"

namespace canopy {
namespace {

using namespace test;

class UploadedExpertsTest : public ExpertSweeps {
 protected:
  UploadedExpertsTest() : ExpertSweeps(std::make_unique<EmulatedCuda>()) {}
  /// `on_host`: experts that stay in host memory, where it does not hold all of them.
  std::unique_ptr<UploadedExperts> make(std::size_t stay,
                                        std::optional<std::size_t> on_host = std::nullopt) {
    std::unique_ptr<ExpertSource> host;
    if (on_host) {
      auto cache =
          std::make_unique<ExpertCache>(*device_, sweep_, least() + *on_host, StreamerOptions{});
      cache_ = cache.get();
      host = std::move(cache);
    } else {
      host = std::make_unique<HostExperts>(*device_, sweep_, Loading{notes_});
    }
    auto made = std::make_unique<UploadedExperts>(*device_, sweep_, std::move(host));
    made->begin(least() + stay, notes_);
    return made;
  }

  Notes notes_;
  ExpertCache* cache_ = nullptr;
};

TEST_F(UploadedExpertsTest, LendsTheBytesOfTheFileAtEverySize) {
  for (std::size_t stay = 0; stay <= sweep_.experts.size(); stay += 3) {
    SCOPED_TRACE(stay);
    const auto source = make(stay);
    asked_ = 0;
    for (const std::size_t rows : {1, 2, 9, 1, 1, 30, 1}) run_sweep(*source, rows);
    expect_right_bytes();
    const UploadedExperts::Totals totals = source->totals();
    EXPECT_EQ(totals.hits + totals.misses, asked_);
    EXPECT_EQ(totals.uploads.bytes, totals.misses * UploadedExperts::slot_bytes(sweep_));
    EXPECT_GT(totals.uploads.busy.count(), 0);
    EXPECT_EQ(source->held_bytes(), (least() + stay) * UploadedExperts::slot_bytes(sweep_));
    if (stay == 0) {
      EXPECT_EQ(totals.hits, 0u);
    }
    if (stay >= sweep_.experts.size()) {
      EXPECT_LE(totals.misses, sweep_.experts.size());
    }
  }
  EXPECT_EQ(notes_, Notes{});
}

TEST_F(UploadedExpertsTest, AsksTheHostsCacheForWhatTheDeviceLacksAndNothingElse) {
  for (const std::size_t on_device : {0u, 5u})
    for (const std::size_t on_host : {0u, 6u}) {
      SCOPED_TRACE(testing::Message() << on_device << " on the device, " << on_host);
      const auto source = make(on_device, on_host);
      asked_ = 0;
      for (int sweep = 0; sweep < 12; ++sweep) {
        const std::size_t rows = sweep % 4 == 3 ? 20 : 1;
        run_sweep(*source, rows);
        source->keep_rows(std::vector<std::int32_t>{static_cast<std::int32_t>(rows) - 1});
      }
      run_layer(*source, layers_[0], routes(12), 2);
      source->abandon_sweep();
      for (int sweep = 0; sweep < 3; ++sweep) run_sweep(*source, 2);
      expect_right_bytes();
      EXPECT_EQ(cache_->totals().hits + cache_->totals().misses, source->totals().misses);
      EXPECT_EQ(cache_->totals().hits > 0, on_host > 0);
      EXPECT_EQ(source->totals().hits > 0, on_device > 0);
    }
}

TEST_F(UploadedExpertsTest, FindsAsManyAsACacheThatReadsFromDisk) {
  for (const std::size_t stay : {3u, 7u, 12u}) {
    SCOPED_TRACE(stay);
    const auto host = make_device({.threads = 1});
    const auto stream = host->make_stream("compute");
    ExpertCache cache(*host, sweep_, least() + stay, {});
    const auto source = make(stay);
    for (int sweep = 0; sweep < 30; ++sweep) {
      const std::size_t rows = 1 + random_() % 3;
      for (const int layer : layers_) {
        const std::vector<std::int32_t> chosen = routes(rows);
        run_layer(*source, layer, chosen);
        cache.want(layer, chosen);
        for (const std::int32_t e : std::set<std::int32_t>(chosen.begin(), chosen.end()))
          cache.acquire(layer, e, *stream, {});
      }
      const std::vector<std::int32_t> kept{static_cast<std::int32_t>(random_() % rows)};
      source->keep_rows(kept);
      cache.keep_rows(kept);
    }
    expect_right_bytes();
    EXPECT_EQ(source->totals().hits, cache.totals().hits);
    EXPECT_EQ(source->totals().misses, cache.totals().misses);
    EXPECT_GT(source->totals().hits, 0u);
  }
}

TEST_F(UploadedExpertsTest, LendsTheSameBytesFromSlotsThatComeAndGoInMemoryOfOthers) {
  constexpr std::size_t kMore = 8;
  const std::size_t slot = UploadedExperts::slot_bytes(sweep_), fixed = least() + 2;
  UploadedExperts source(*device_, sweep_,
                         std::make_unique<HostExperts>(*device_, sweep_, Loading{notes_}));
  const Buffer memory = device_->allocate(kMore * slot);
  source.begin(fixed, notes_, memory.data() + memory.bytes());
  std::uint64_t hits = 0;
  for (int sweep = 0; sweep < 120; ++sweep) {
    const std::size_t more = random_() % (kMore + 1);
    compute_->synchronize();
    source.resize(fixed + more);
    EXPECT_EQ(source.slots(), fixed + more);
    const std::vector<std::byte> others((kMore - more) * slot, std::byte{0xff});
    if (!others.empty()) device_->upload(*compute_, memory.data(), others);
    compute_->synchronize();
    if (random_() % 5 == 0) {
      run_layer(source, layers_[0], routes(12), random_() % 4);
      source.abandon_sweep();
    } else {
      run_sweep(source, 1 + random_() % 12);
    }
    hits = source.totals().hits;
  }
  expect_right_bytes();
  EXPECT_GT(hits, 0u);
  EXPECT_THROW(source.resize(fixed - 1), Error);
  EXPECT_EQ(source.held_bytes(), fixed * slot);
}

TEST_F(UploadedExpertsTest, GoesOnAfterSweepsThatWereGivenUp) {
  const auto source = make(5);
  for (int sweep = 0; sweep < 60; ++sweep) {
    const std::size_t until = random_() % (layers_.size() + 1);
    for (std::size_t i = 0; i < until; ++i)
      run_layer(*source, layers_[i], routes(1 + random_() % 20));
    if (until < layers_.size()) {
      run_layer(*source, layers_[until], routes(12), random_() % 4);
      source->abandon_sweep();
    }
  }
  expect_right_bytes();
}

TEST_F(UploadedExpertsTest, HasFewerSlotsWhereTheDeviceHasLessAndSaysSo) {
  const std::size_t slot = UploadedExperts::slot_bytes(sweep_),
                    fixed = device_->driver_share().fixed;
  UploadedExperts source(*device_, sweep_,
                         std::make_unique<HostExperts>(*device_, sweep_, Loading{notes_}));
  std::vector<Buffer> others;
  others.push_back(device_->allocate(device_->free_bytes() - fixed - (least() + 4) * slot));
  source.begin(least() + 9, notes_);
  EXPECT_LE(source.slots(), least() + 4);
  EXPECT_GE(source.slots(), least());
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_NE(notes_[0].find("experts have room there, not"), std::string::npos) << notes_[0];
  for (int sweep = 0; sweep < 5; ++sweep) run_sweep(source, 3);
  expect_right_bytes();
}

TEST_F(UploadedExpertsTest, RefusesFewerSlotsThanALayerNeeds) {
  UploadedExperts source(*device_, sweep_,
                         std::make_unique<HostExperts>(*device_, sweep_, Loading{notes_}));
  const std::string why = error_of([&] { source.begin(least() - 1, notes_); });
  EXPECT_NE(why.find("a layer needs " + std::to_string(least())), std::string::npos) << why;
}

}  // namespace
}  // namespace canopy
