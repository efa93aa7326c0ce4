#include "kernels/cpu/pool.h"

#include <string>

#include "src/base/error.h"
#include "src/machine/cpus.h"

namespace canopy::cpu {

namespace {

// Ops follow each other within microseconds: look again for some tens of them before sleeping. To
// yield instead would hand a loaded machine's core to another process for whole milliseconds.
constexpr int kLooks = 1000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Pool::Pool(int size, std::span<const int> cpus) {
  if (size < 1) throw Error("a pool needs at least 1 thread, not " + std::to_string(size));
  try {
    for (std::size_t worker = 1; worker < static_cast<std::size_t>(size); ++worker)
      threads_.emplace_back([this, worker] { serve(worker); });
    for (std::size_t i = 0; i < threads_.size() && !cpus.empty(); ++i)
      bind_thread(threads_[i].native_handle(), cpus.subspan((i + 1) % cpus.size(), 1));
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    calls_.fetch_add(1);
  }
  called_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::take_turns(std::size_t worker) noexcept {
  try {
    for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count_;)
      work_.call(work_.body, i, worker);
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void Pool::serve(std::size_t worker) {
  for (std::uint64_t seen = 0;;) {
    for (int i = 0; i < kLooks && calls_.load(std::memory_order_acquire) == seen; ++i) relax();
    if (calls_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      called_.wait(lock, [&] { return calls_.load() != seen; });
    }
    ++seen;
    if (stopping_) return;
    take_turns(worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
  }
}

void Pool::run(std::size_t count, Work work) {
  if (count == 0) return;
  if (threads_.empty() || count == 1) {
    for (std::size_t i = 0; i < count; ++i) work.call(work.body, i, 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    work_ = work;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(threads_.size(), std::memory_order_relaxed);
    calls_.fetch_add(1, std::memory_order_release);
  }
  called_.notify_all();
  take_turns(0);
  for (int i = 0; i < kLooks && busy_.load(std::memory_order_acquire) != 0; ++i) relax();
  for (std::size_t busy; (busy = busy_.load(std::memory_order_acquire)) != 0;) busy_.wait(busy);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace canopy::cpu
