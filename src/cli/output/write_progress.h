#pragma once
#include <chrono>
#include <cstdint>

#include "src/cli/interrupt.h"
#include "src/cli/output/progress_line.h"

namespace canopy::cli {

/// Line that inflate and quantize show on stderr while they write, from the third second on. One
/// thread; made before any other (Interrupt).
class WriteProgress {
 public:
  explicit WriteProgress(bool lines) : line_(lines) {}  // as ProgressLine
  /// Bytes. Throws Stopped after Ctrl-C or SIGTERM, so that the partial output is removed.
  void operator()(std::uint64_t done, std::uint64_t total);
  void clear() { line_.clear(); }  // before anything else is printed

 private:
  using Clock = std::chrono::steady_clock;
  Interrupt interrupt_;
  ProgressLine line_;
  Clock::time_point start_ = Clock::now(), next_ = start_ + std::chrono::seconds(2);
};

}  // namespace canopy::cli
