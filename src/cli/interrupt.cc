#include "src/cli/interrupt.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "src/base/types.h"

namespace canopy::cli {

namespace {

constexpr auto kOneStop = std::chrono::milliseconds(200);  // no hand is as fast

std::atomic<int> stopped_by = SIGINT;  // a process has one set of signals

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Interrupt::Interrupt() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  watcher_ = std::jthread([this, set](const std::stop_token& over) {
    std::optional<Clock::time_point> first;
    while (!over.stop_requested()) {
      const timespec tick{0, 50'000'000};
      const int signal = sigtimedwait(&set, nullptr, &tick);
      if (signal < 0) continue;
      const auto now = Clock::now();
      if (first && now - *first < kOneStop) continue;
      first = now;
      stopped_by = signal;
      const std::lock_guard lock(mutex_);
      if (!source_.request_stop()) std::_Exit(exit_code());
    }
  });
}

Interrupt::~Interrupt() {
  watcher_.request_stop();
  watcher_.join();
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

std::stop_token Interrupt::token() const {
  const std::lock_guard lock(mutex_);
  return source_.get_token();
}

void Interrupt::renew() {
  const std::lock_guard lock(mutex_);
  source_ = std::stop_source();
}

bool Interrupt::terminated() { return stopped_by == SIGTERM; }

int Interrupt::exit_code() { return 128 + stopped_by; }

}  // namespace canopy::cli
