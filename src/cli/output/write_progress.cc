#include "src/cli/output/write_progress.h"

#include "src/base/error.h"
#include "src/base/size_text.h"
#include "src/base/types.h"

namespace canopy::cli {

void WriteProgress::operator()(std::uint64_t done, std::uint64_t total) {
  if (stop_.stop_requested()) throw Stopped();
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::seconds(1);
  const double rate = static_cast<double>(done) / Seconds(now - start_).count();
  line_.show("written " + format_size(done) + " of " + format_size(total) + ", " +
             format_size(static_cast<std::uint64_t>(rate)) + "/s");
}

}  // namespace canopy::cli
