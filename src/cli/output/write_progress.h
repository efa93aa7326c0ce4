#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>

#include "src/cli/interrupt.h"
#include "src/cli/output/progress_line.h"

namespace canopy::cli {

/// Line that commands which write models show on stderr, from the third second on. One thread.
class WriteProgress {
 public:
  /// Catches Ctrl-C and SIGTERM itself; made before any other thread (Interrupt). `lines`: as
  /// ProgressLine has it.
  explicit WriteProgress(bool lines)
      : interrupt_(std::in_place), stop_(interrupt_->token()), line_(lines) {}
  /// Takes the stop of a command that catches them.
  WriteProgress(bool lines, std::stop_token stop) : stop_(std::move(stop)), line_(lines) {}
  /// Bytes. Throws Stopped when a stop is requested.
  void operator()(std::uint64_t done, std::uint64_t total);
  void clear() { line_.clear(); }  // before anything else is printed

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Interrupt> interrupt_;
  std::stop_token stop_;
  ProgressLine line_;
  Clock::time_point start_ = Clock::now(), next_ = start_ + std::chrono::seconds(2);
};

}  // namespace canopy::cli
