#pragma once
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdint>

namespace canopy::cli {

/// What inflate and quantize show on stderr while they write: nothing in the first two seconds,
/// then a line rewritten in place on a terminal, or a line every few seconds with --progress.
/// One thread.
class WriteProgress {
 public:
  explicit WriteProgress(const boost::program_options::variables_map& values);
  ~WriteProgress();  // ends a line that is still open
  WriteProgress(const WriteProgress&) = delete;
  WriteProgress& operator=(const WriteProgress&) = delete;
  /// Throws Stopped after Ctrl-C or SIGTERM, so that the partial output is removed.
  void operator()(std::uint64_t done, std::uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_, lines_, open_ = false;
  Clock::time_point start_ = Clock::now(), next_;
};

}  // namespace canopy::cli
