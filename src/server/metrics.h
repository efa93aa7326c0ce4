#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "src/engine/session.h"

namespace canopy::server {

/// Counts of durations up to some bounds, as Prometheus has them.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)) {
    counts_.resize(bounds_.size() + 1);
  }
  void observe(double value, std::uint64_t times = 1);
  void write(std::string& out, const std::string& name) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;  // one more than bounds
  double sum_ = 0;
};

/// Values of the moment, next to those that are counted.
struct Gauges {
  int texts = 0, running = 0;
  int kv_blocks = 0, free_kv_blocks = 0;
  std::map<std::string, std::uint64_t> memory;  // bytes, by lines of the ledger
  std::uint64_t resident_bytes = 0;             // of weights that stay
  PoolReport pool;                              // as the last sweep ended
  std::vector<std::string> hosts;               // of ranks that share the model; none: it is alone
  const char* tier = "host";                    // the memory that they stay in: "host" or "gpu"
};

/// Counters of a server's work since it began, in Prometheus' text format. Any thread.
class Metrics {
 public:
  void swept(const SweepReport& sweep);
  void ended(const TextReport& text, const std::string& finish_reason);
  /// Texts that had no end of their own: "cancelled", "error", "refused".
  void ended_early(const std::string& how, int texts);
  std::string text(const Gauges& now) const;

 private:
  void write_ranks(std::string& out, const std::vector<std::string>& hosts) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> ended_;
  std::uint64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  std::uint64_t drafts_ = 0, draft_tokens_ = 0;
  std::vector<std::uint64_t> accepted_at_;  // by position after the root
  std::uint64_t disk_bytes_ = 0, upload_bytes_ = 0;
  std::uint64_t expert_hits_ = 0, expert_misses_ = 0;
  double disk_busy_ = 0, upload_busy_ = 0, stall_ = 0;
  std::vector<RankFigures> ranks_;
  Histogram first_token_{{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500}};
  Histogram per_token_{{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25}};
  Histogram between_{{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50}};
  Histogram whole_{{0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500}};
  Histogram sweep_{{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50}};
  Histogram texts_{{1, 2, 4, 8, 16, 32}};
  Histogram tokens_{{1, 2, 3, 4, 6, 8, 12, 16, 32, 64}};
};

}  // namespace canopy::server
