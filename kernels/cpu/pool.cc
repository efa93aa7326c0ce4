#include "kernels/cpu/pool.h"

#include <string>

#include "src/base/error.h"
#include "src/machine/cpus.h"

namespace canopy::cpu {

namespace {

// Ops follow each other within microseconds: look again for some tens of them before sleeping. To
// yield instead would hand a loaded machine's core to another process for whole milliseconds.
constexpr int kLooks = 1000;
constexpr std::uint64_t kIndices = 0xffffffff;  // of a call, at most; those of Pool::left_

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
  }
  called_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::uint32_t Pool::last_call() const noexcept {
  return static_cast<std::uint32_t>(left_.load(std::memory_order_acquire) >> 32);
}

Pool::Indices Pool::take(std::uint32_t call, Take which) noexcept {
  std::uint64_t left = left_.load(std::memory_order_relaxed);
  while (true) {
    const std::uint64_t count = left & kIndices;
    if (left >> 32 != call || count == 0) return {};
    const std::uint64_t taken = which == Take::kOne ? 1 : count;
    if (left_.compare_exchange_weak(left, left - taken, std::memory_order_acq_rel,
                                    std::memory_order_relaxed))
      return {count_ - count, taken};
  }
}

void Pool::take_turns(std::uint32_t call, std::size_t worker) noexcept {
  std::size_t ended = 0;
  try {
    for (Indices mine; (mine = take(call, Take::kOne)).count > 0;) {
      ++ended;
      work_.call(work_.body, mine.first, worker);
    }
  } catch (...) {
    ended += take(call, Take::kAll).count;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  if (ended > 0 && not_ended_.fetch_sub(ended, std::memory_order_acq_rel) == ended)
    not_ended_.notify_one();
}

void Pool::serve(std::size_t worker) {
  for (std::uint32_t seen = 0;;) {
    for (int i = 0; i < kLooks && last_call() == seen; ++i) relax();
    if (last_call() == seen) {
      std::unique_lock lock(mutex_);
      called_.wait(lock, [&] { return stopping_ || last_call() != seen; });
      if (stopping_) return;
    }
    seen = last_call();
    take_turns(seen, worker);
  }
}

void Pool::run(std::size_t count, Work work) {
  if (count == 0) return;
  if (threads_.empty() || count == 1) {
    for (std::size_t i = 0; i < count; ++i) work.call(work.body, i, 0);
    return;
  }
  if (count > kIndices) throw Error("a call of a pool has fewer than 2^32 indices");
  const std::uint32_t call = last_call() + 1;
  work_ = work;
  count_ = count;
  not_ended_.store(count, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    left_.store(std::uint64_t{call} << 32 | count, std::memory_order_release);
  }
  called_.notify_all();
  take_turns(call, 0);
  for (int i = 0; i < kLooks && not_ended_.load(std::memory_order_acquire) != 0; ++i) relax();
  for (std::size_t left; (left = not_ended_.load(std::memory_order_acquire)) != 0;)
    not_ended_.wait(left);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace canopy::cpu
