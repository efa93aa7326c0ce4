#pragma once
#include <chrono>
#include <mutex>

namespace canopy {

/// The time in which somebody reads, of those who share a disk: each says when it begins and ends.
/// Any thread.
class LinkClock {
 public:
  using Clock = std::chrono::steady_clock;

  void begin() {
    const std::lock_guard lock(mutex_);
    if (readers_++ == 0) since_ = Clock::now();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    if (--readers_ == 0) busy_ += Clock::now() - since_;
  }
  Clock::duration busy() const {
    const std::lock_guard lock(mutex_);
    return busy_ + (readers_ > 0 ? Clock::now() - since_ : Clock::duration{});
  }

 private:
  mutable std::mutex mutex_;
  int readers_ = 0;
  Clock::time_point since_;
  Clock::duration busy_{};
};

/// One of them. One thread at a time.
class LinkReader {
 public:
  explicit LinkReader(LinkClock& clock) : clock_(clock) {}
  ~LinkReader() { rests(); }
  LinkReader(const LinkReader&) = delete;
  LinkReader& operator=(const LinkReader&) = delete;

  void reads() {
    if (!reading_) clock_.begin();
    reading_ = true;
  }
  void rests() {
    if (reading_) clock_.end();
    reading_ = false;
  }

 private:
  LinkClock& clock_;
  bool reading_ = false;
};

}  // namespace canopy
