#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "kernels/device.h"

namespace canopy::cpu {

/// A callable of plain values, copied into place. Plain itself, so that it can be copied on.
class Work {
 public:
  template <class Callable>
  void set(const Callable& work) {
    static_assert(sizeof(Callable) <= kBytes && std::is_trivially_copyable_v<Callable>);
    new (bytes_.data()) Callable(work);
    run_ = [](void* of) { (*static_cast<const Callable*>(of))(); };
  }
  void clear() { run_ = nullptr; }
  explicit operator bool() const { return run_ != nullptr; }
  void operator()() { run_(bytes_.data()); }

 private:
  static constexpr std::size_t kBytes = 960;
  alignas(std::max_align_t) std::array<std::byte, kBytes> bytes_;
  void (*run_)(void*) = nullptr;
};

/// Progress of a stream: the number of its pieces of work that are finished. Outlives the stream
/// while an event points at it. Any thread.
class Timeline {
 public:
  bool reached(std::uint64_t point) const;
  void wait(std::uint64_t point) const;
  void advance();  // by one; only the stream's thread

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable moved_;
  std::uint64_t done_ = 0;
};

/// A point on the timeline of the stream that recorded it last. Any thread; which of two
/// unordered calls of record and wait comes first is for the callers to settle.
class CpuEvent final : public Timer {
 public:
  enum class Timed : bool { kNo, kYes };
  explicit CpuEvent(Timed timed = Timed::kNo) : timed_(timed == Timed::kYes) {}
  bool reached() const override;
  void wait() const override;
  Seconds since(const Timer& earlier) const override;

 private:
  friend class CpuStream;
  struct Point {
    std::shared_ptr<const Timeline> timeline;  // null before the first record
    std::uint64_t at = 0;
  };
  Point point() const;

  const bool timed_;
  std::chrono::steady_clock::time_point when_;  // written by the stream's thread
  mutable std::mutex mutex_;
  Point point_;
};

/// Work that a stream has captured, piece by piece.
class CpuGraph final : public Graph {
 private:
  friend class CpuStream;
  struct Piece {
    Work work;
    Event* record = nullptr;  // or one of these two instead of work
    const Event* wait = nullptr;
  };
  std::vector<Piece> pieces_;
};

/// A thread and a ring of work. Calls enqueue and return, waiting only while the ring is full:
/// that cannot deadlock, because queued work waits only for work queued before it. One calling
/// thread at a time; the destructor finishes what was queued.
class CpuStream final : public Stream {
 public:
  /// Its thread is bound to `cpus`; empty: unbound.
  CpuStream(std::string_view name, std::vector<int> cpus);
  ~CpuStream() override;

  void record(Event& event) override;
  void wait(const Event& event) override;
  /// Throws the Error of the first work that failed since the last call. Work after a failure is
  /// skipped, though its events are still reached; after the throw the stream works again.
  void synchronize() override;

  /// Queues work(), a callable of plain values: it is copied into the ring, nothing is allocated.
  template <class Callable>
  void enqueue(const Callable& work) {
    if (capturing_ != nullptr) {
      capturing_->pieces_.emplace_back().work.set(work);
      return;
    }
    claim().work.set(work);
    publish();
  }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;
  bool capturing() const override { return capturing_ != nullptr; }
  void launch(const Graph& graph) override;

 private:
  static constexpr std::size_t kSlots = 256;
  struct Slot {
    Work work;  // nothing: wait for `until`
    CpuEvent::Point until;
  };
  Slot& claim();  // waits for a free slot
  void publish();
  void serve();

  const std::string name_;
  const std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  const std::unique_ptr<std::array<Slot, kSlots>> slots_ =
      std::make_unique<std::array<Slot, kSlots>>();
  std::mutex mutex_;
  std::condition_variable queued_, finished_;
  std::uint64_t head_ = 0, tail_ = 0;  // finished and queued so far
  CpuGraph* capturing_ = nullptr;      // only the calling thread looks
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace canopy::cpu
