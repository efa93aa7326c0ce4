#include "src/cli/output/pull_progress.h"

#include <string>

#include "src/base/size_text.h"

namespace canopy::cli {

void PullProgress::operator()(std::uint64_t there, std::uint64_t all) {
  constexpr std::chrono::seconds kWindow{2}, kBetweenLines{1};
  const Clock::time_point now = Clock::now();
  // A file that has started again makes the figure fall.
  if (!samples_.empty() && there < samples_.back().there) samples_.clear();
  samples_.push_back({now, there});
  while (samples_.size() > 1 && now - samples_[1].at >= kWindow) samples_.pop_front();
  const double seconds = Seconds(now - samples_.front().at).count();
  if (now - shown_ < kBetweenLines || seconds == 0) return;
  shown_ = now;
  const double rate = static_cast<double>(there - samples_.front().there) / seconds;
  std::string text = "downloaded " + format_size(there) + " of " + format_size(all) + ", " +
                     format_size(static_cast<std::uint64_t>(rate)) + "/s";
  if (rate > 0) {
    const auto left = static_cast<std::uint64_t>(static_cast<double>(all - there) / rate);
    const std::string rest = std::to_string(left % 60);
    text += ", " + std::to_string(left / 60) + ":" + (rest.size() < 2 ? "0" : "") + rest + " left";
  }
  line_.show(text);
}

}  // namespace canopy::cli
