#include "src/cli/output/step_line.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "src/base/size_text.h"
#include "src/cluster/cluster.h"

namespace canopy::cli {

namespace {

std::string percent(double share) { return std::to_string(std::lround(100 * share)) + "%"; }

std::string rate(double bytes, Seconds time) {
  return time.count() > 0 ? format_size(static_cast<std::uint64_t>(bytes / time.count())) + "/s"
                          : "-";
}

/// "97/64%": the share of the last step in which each rank's link carried something.
std::string shares_by_rank(const std::vector<RankFigures>& ranks) {
  std::string text;
  for (const RankFigures& rank : ranks) {
    const double share = rank.elapsed.count() > 0 ? rank.link_busy / rank.elapsed : 0;
    if (!text.empty()) text += '/';
    text += std::to_string(std::lround(100 * share));
  }
  return text + "%";
}

}  // namespace

void StepLine::show(const StepProgress& step, ProgressLine& progress) {
  if (step.new_tokens > 0) {
    last_ = {step.since_start, step.total_tokens};
    if (step.step == 1) first_ = last_;
  }
  if (step.new_tokens > 0 || progress.wants_glimpse()) progress.show(describe(step));
}

std::optional<Seconds> StepLine::time_left(const StepProgress& now) const {
  if (!tokens_ || last_.tokens == first_.tokens) return std::nullopt;
  const Seconds per_token = (last_.time - first_.time) / (last_.tokens - first_.tokens);
  const double tokens = double{1} * texts_ * *tokens_;
  return std::max(Seconds{}, per_token * (tokens - last_.tokens) - (now.since_start - last_.time));
}

std::string StepLine::describe(const StepProgress& step) const {
  std::ostringstream line;
  line << std::fixed << std::setprecision(1) << "step " << step.step;
  if (step.new_tokens > 0)
    line << ": " << step.new_tokens << " tokens, " << step.total_tokens << " in all";
  else
    line << ", layer " << std::min(step.layer + 1, step.layers) << "/" << step.layers;
  if (texts_ > 1) line << ", " << step.texts_done << "/" << texts_ << " samples";
  if (const auto left = time_left(step); left && left->count() >= 1)
    line << ", " << std::lround(left->count()) << " s left";
  if (step.total_tokens > 0) {
    const int sweeps = step.new_tokens > 0 ? step.step : step.step - 1;
    line << ", " << static_cast<double>(step.total_tokens) / sweeps << " tokens/sweep";
  }
  if (const Cluster* const ranks = engine_.cluster()) {
    const ClusterTotals& totals = ranks->totals();
    line << ", waits for " << ranks->name(totals.slowest()) << " "
         << percent(totals.waited[static_cast<std::size_t>(totals.slowest())] / step.since_start);
  }
  if (engine_.plan().resident) return line.str();
  const bool uploads = engine_.plan().device.has_value();
  const std::uint64_t moved = uploads ? step.link.upload_bytes : step.link.disk_bytes;
  const auto bytes = static_cast<double>(moved);
  line << ", " << format_size(moved) << " at " << rate(bytes, step.time);
  if (const LinkSample& probe = engine_.link_probe(); probe.bytes > 0 && !uploads)
    line << " (" << percent(bytes / step.time.count() / probe.bytes_per_second())
         << " of the probe)";
  if (const std::uint64_t asked = step.link.expert_hits + step.link.expert_misses; asked > 0)
    line << ", " << percent(static_cast<double>(step.link.expert_hits) / static_cast<double>(asked))
         << " of its experts in memory";
  if (const PoolReport pool = engine_.pool(); pool.evicted + pool.returned > 0)
    line << ", " << format_size(pool.resident) << " resident";
  if (step.ranks.empty())
    line << ", link busy "
         << percent((uploads ? step.link.upload_busy : step.link.busy) / step.time);
  else
    line << ", links of the ranks busy " << shares_by_rank(step.ranks);
  return line.str();
}

}  // namespace canopy::cli
