#pragma once
#include <cstdint>
#include <deque>

#include "src/base/types.h"
#include "src/cli/output/progress_line.h"

namespace canopy::cli {

/// Line that a download shows on stderr, once a second: the bytes that are there, and the rate of
/// the last two seconds. One thread.
class PullProgress {
 public:
  explicit PullProgress(bool lines) : line_(lines) {}  // as ProgressLine
  void operator()(std::uint64_t there, std::uint64_t all);
  void clear() { line_.clear(); }  // before anything else is printed

 private:
  struct Sample {
    Clock::time_point at;
    std::uint64_t there;
  };
  ProgressLine line_;
  std::deque<Sample> samples_;  // the first is two seconds old, where there is one
  Clock::time_point shown_{};
};

}  // namespace canopy::cli
