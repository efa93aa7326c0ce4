#pragma once
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "offload/io/read_engine.h"
#include "tests/handshake.h"

namespace canopy::test {

/// Counts an engine's reads. Any thread.
struct ReadCount {
  std::atomic<std::uint64_t> asked{0}, answered{0};
};

struct Faults {
  double shorten = 0.0;  // probability that a read brings less than asked; the rest is garbage
  double refuse = 0.0;   // probability of EAGAIN or EINTR instead of bytes
  int delay_us = 0;      // longest delay of a wait
  std::uint64_t fail_from = UINT64_MAX;  // reads from this one on bring EIO
  std::uint64_t flip = UINT64_MAX;       // this read brings one wrong bit
  std::uint64_t hang = UINT64_MAX;       // this read hangs until the gate is open
  std::shared_ptr<Gate> gate = {};
  std::shared_ptr<ReadCount> count = {};
};

/// An engine between the reader and the disk that reorders completions, shortens, refuses, delays
/// and fails reads, by seed. One thread at a time, as every engine.
class FaultyReads final : public ReadEngine {
 public:
  FaultyReads(std::unique_ptr<ReadEngine> inner, const Faults& faults, std::uint64_t seed)
      : inner_(std::move(inner)), faults_(faults), random_(seed) {}

  std::size_t depth() const override { return inner_->depth(); }

  void submit(std::span<const ReadRequest> requests) override {
    inner_->submit(requests);
    if (faults_.count) faults_.count->asked += requests.size();
    for (const ReadRequest& request : requests) inside_.push_back(request);
  }

  std::size_t wait(std::span<ReadDone> done) override {
    if (faults_.delay_us > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(below(faults_.delay_us)));
    const bool gather_all = below(3) == 0;
    while (!inside_.empty() && (held_.empty() || gather_all)) {
      std::vector<ReadDone> arrived(inside_.size());
      arrived.resize(inner_->wait(arrived));
      for (const ReadDone& one : arrived) held_.push_back(spoil(one));
    }
    if (held_.empty()) return 0;
    std::shuffle(held_.begin(), held_.end(), random_);
    const std::size_t count = std::min(done.size(), 1 + below(held_.size()));
    for (std::size_t i = 0; i < count; ++i) {
      done[i] = held_.back();
      held_.pop_back();
    }
    if (faults_.count) faults_.count->answered += count;
    return count;
  }

 private:
  template <class Number>
  std::size_t below(Number end) {
    return random_() % static_cast<std::size_t>(end);
  }
  bool happens(double probability) {
    return std::uniform_real_distribution<>()(random_) < probability;
  }

  ReadDone spoil(ReadDone done) {
    const auto it = std::find_if(inside_.begin(), inside_.end(),
                                 [&](const ReadRequest& r) { return r.tag == done.tag; });
    const ReadRequest request = *it;
    inside_.erase(it);
    if (done.result < 0) return done;
    auto kept = static_cast<std::size_t>(done.result);
    const std::uint64_t number = reads_++;
    if (number == faults_.hang) faults_.gate->pass();
    // The first byte changes: the last ones may be over-read, which nobody uses or sums.
    if (number == faults_.flip && kept > 0) request.into.front() ^= std::byte{1};
    if (number >= faults_.fail_from) {
      kept = 0;
      done.result = -EIO;
    } else if (happens(faults_.refuse)) {
      kept = 0;
      done.result = below(2) ? -EAGAIN : -EINTR;
    } else if (kept > kReadAlignment && happens(faults_.shorten)) {
      kept = kReadAlignment + below(kept - kReadAlignment);  // a whole block at least
      done.result = static_cast<std::int64_t>(kept);
    }
    std::fill(request.into.begin() + static_cast<std::ptrdiff_t>(kept), request.into.end(),
              std::byte{0xEE});
    return done;
  }

  std::unique_ptr<ReadEngine> inner_;
  const Faults faults_;
  std::mt19937_64 random_;
  std::vector<ReadRequest> inside_;  // submitted, not yet returned by the inner engine
  std::vector<ReadDone> held_;
  std::uint64_t reads_ = 0;
};

}  // namespace canopy::test
