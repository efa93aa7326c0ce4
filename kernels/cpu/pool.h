#pragma once
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace canopy::cpu {

/// Fork-join over the cores: the calling thread is worker 0, threads 1 .. size - 1 wait between
/// calls. A worker that wakes late, because others use its core, is not waited for: the others take
/// its part. One call at a time; a body must not call the pool it runs in.
class Pool {
 public:
  /// Worker i > 0 is bound to cpus[i % cpus.size()]; empty: unbound. Worker 0 is the caller's
  /// affair.
  Pool(int size, std::span<const int> cpus);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::size_t size() const { return threads_.size() + 1; }

  /// Calls body(index, worker) once for every index in [0, count), in any order and on any worker.
  /// Rethrows the first exception of a body, after all bodies under way have returned; indices
  /// not yet begun are then left out.
  template <class Body>
  void for_each(std::size_t count, const Body& body) {
    run(count, {&body, [](const void* of, std::size_t index, std::size_t worker) {
                  (*static_cast<const Body*>(of))(index, worker);
                }});
  }

 private:
  struct Work {
    const void* body = nullptr;
    void (*call)(const void*, std::size_t, std::size_t) = nullptr;
  };
  struct Indices {
    std::size_t first = 0, count = 0;
  };
  enum class Take : bool { kOne, kAll };

  void run(std::size_t count, Work work);
  /// Takes indices that nobody has taken; none if the call is over. Until these have ended, count_
  /// and work_ are those of the call.
  Indices take(std::uint32_t call, Take which) noexcept;
  void take_turns(std::uint32_t call, std::size_t worker) noexcept;
  std::uint32_t last_call() const noexcept;
  void serve(std::size_t worker);
  void stop();

  std::mutex mutex_;
  std::condition_variable called_;
  std::atomic<std::uint64_t> left_{0};     // call << 32 | indices that nobody has taken
  std::atomic<std::size_t> not_ended_{0};  // indices of the call, those left among them
  std::size_t count_ = 0;
  Work work_;
  std::exception_ptr error_;  // under mutex_
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

inline std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Calls body(row) for each of n rows of `width` elements; alone where waking workers costs more.
template <class Body>
void for_rows(Pool& pool, std::size_t n, std::size_t width, const Body& body) {
  constexpr std::size_t kShare = 16 * 1024;  // elements worth a worker's while
  const std::size_t rows = std::max<std::size_t>(1, kShare / std::max<std::size_t>(1, width));
  pool.for_each((n + rows - 1) / rows, [&](std::size_t share, std::size_t) {
    for (std::size_t i = share * rows; i < std::min(n, (share + 1) * rows); ++i) body(i);
  });
}

}  // namespace canopy::cpu
