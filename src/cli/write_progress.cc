#include "src/cli/write_progress.h"

#include <unistd.h>

#include <csignal>
#include <iostream>

#include "src/base/error.h"
#include "src/base/types.h"
#include "src/cli/command.h"

namespace canopy::cli {

namespace {

volatile std::sig_atomic_t stop_requested = 0;

/// The first signal asks for a stop; the second, if that takes too long, ends the process.
void request_stop(int signal) {
  stop_requested = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

WriteProgress::WriteProgress(const boost::program_options::variables_map& values)
    : terminal_(isatty(STDERR_FILENO) == 1), lines_(!terminal_ && values.count("progress") > 0) {
  using namespace std::chrono_literals;
  next_ = start_ + 2s;
  std::signal(SIGINT, request_stop);
  std::signal(SIGTERM, request_stop);
}

WriteProgress::~WriteProgress() {
  if (open_) std::cerr << "\n";
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

void WriteProgress::operator()(std::uint64_t done, std::uint64_t total) {
  using namespace std::chrono_literals;
  if (stop_requested) throw Stopped();
  if (!terminal_ && !lines_) return;
  const Clock::time_point now = Clock::now();
  const bool last = done == total;
  if (now < next_ && !(last && open_)) return;
  const double elapsed = Seconds(now - start_).count();
  std::cerr << (terminal_ ? "\r" : "") << "written " << format_size(done) << " of "
            << format_size(total) << ", "
            << format_size(static_cast<std::uint64_t>(static_cast<double>(done) / elapsed)) << "/s"
            << (terminal_ ? "   " : "\n") << std::flush;
  open_ = terminal_ && !last;
  if (terminal_ && last) std::cerr << "\n";
  next_ = now + (terminal_ ? 250ms : 5000ms);
}

}  // namespace canopy::cli
