#include "offload/io/disk_limit.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace canopy {

DiskLimit::DiskLimit(double bytes_per_second) : bytes_per_second_(bytes_per_second) {
  require(bytes_per_second > 0, "the limit of a disk is above 0 bytes per second");
}

Clock::time_point DiskLimit::done_by(Clock::time_point now, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const Seconds takes(static_cast<double>(bytes) / bytes_per_second_);
  idle_from_ = std::max(idle_from_, now) + std::chrono::ceil<Clock::duration>(takes);
  return idle_from_;
}

namespace {

class LimitedReads final : public ReadEngine {
 public:
  LimitedReads(std::unique_ptr<ReadEngine> engine, std::shared_ptr<DiskLimit> limit, ReadTime time)
      : engine_(std::move(engine)),
        limit_(std::move(limit)),
        time_(std::move(time)),
        arrived_(engine_->depth()) {}

  std::size_t depth() const override { return engine_->depth(); }

  void submit(std::span<const ReadRequest> requests) override {
    engine_->submit(requests);
    const auto now = time_.now();
    for (const ReadRequest& request : requests)
      asked_.push_back({{request.tag, 0}, limit_->done_by(now, request.into.size())});
  }

  std::size_t wait(std::span<ReadDone> done) override {
    if (held_.empty()) {
      const std::size_t count = engine_->wait(arrived_);
      for (const ReadDone& one : std::span(arrived_).first(count)) {
        const auto asked = std::ranges::find_if(
            asked_, [&](const Held& other) { return other.done.tag == one.tag; });
        held_.push_back({one, asked->due});
        asked_.erase(asked);
      }
      std::ranges::sort(held_, {}, &Held::due);
      if (held_.empty()) return 0;
    }
    time_.sleep_until(held_.front().due);
    const auto now = time_.now();
    std::size_t count = 1;  // that sleep is over
    while (count < std::min(held_.size(), done.size()) && held_[count].due <= now) ++count;
    for (std::size_t i = 0; i < count; ++i) done[i] = held_[i].done;
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

 private:
  struct Held {
    ReadDone done;
    Clock::time_point due;
  };
  const std::unique_ptr<ReadEngine> engine_;
  const std::shared_ptr<DiskLimit> limit_;
  const ReadTime time_;
  std::vector<ReadDone> arrived_;
  std::vector<Held> asked_, held_;  // of the engine; what it has read, by when it is due
};

}  // namespace

std::unique_ptr<ReadEngine> limit_reads(std::unique_ptr<ReadEngine> engine,
                                        std::shared_ptr<DiskLimit> limit, ReadTime time) {
  return std::make_unique<LimitedReads>(std::move(engine), std::move(limit), std::move(time));
}

}  // namespace canopy
