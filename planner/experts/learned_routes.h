#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "planner/experts/expert_reads.h"

namespace canopy {

/// Sweeps as evidence of how many experts the next ones will read: a line through the logarithms of
/// misses by those of rows (docs/math.md, "What experts cost"). What is learned of one share that
/// stays holds for others. Wrong habits cost speed, never exactness. Plain data.
class LearnedRoutes {
 public:
  /// `sweeps`: that these habits were learned from, in earlier runs.
  explicit LearnedRoutes(const RouteHabits& before = {}, std::int64_t sweeps = 0)
      : before_(before), sweeps_before_(sweeps) {}

  /// A sweep of rows that all followed text, with experts read as `now` says. What the first sweeps
  /// read into an empty cache is no evidence, nor what nearly all experts were read by: neither is
  /// counted.
  void add(const ExpertReads& now, std::int64_t rows, std::uint64_t misses);
  /// The habits that plans should be made with; `now` as the sweeps had it.
  RouteHabits habits(const ExpertReads& now) const;
  std::int64_t sweeps() const;  // with those before; kMostSweeps at most
  bool grown() const;           // since it was made

  /// Writes what a run leaves to the next: the habits, and the number of sweeps that they come
  /// from.
  std::string to_json(const ExpertReads& now) const;
  /// Throws Error saying what is wrong.
  static LearnedRoutes from_json(std::string_view text);

  /// Sweeps that count: beyond these the older half fades, as texts differ.
  static constexpr std::int64_t kMostSweeps = 512;
  /// Sweeps that the habits before count for, at least.
  static constexpr std::int64_t kLeastBefore = 2;

 private:
  struct Sweeps {
    double count = 0, misses = 0, log_rows = 0;  // sums
  };
  RouteHabits before_;
  std::int64_t sweeps_before_;
  std::uint64_t filled_ = 0;        // experts read so far
  std::array<Sweeps, 16> by_rows_;  // from 2^i rows
};

/// The file name under which it is found again.
std::string routes_file_name(const std::string& target);

}  // namespace canopy
