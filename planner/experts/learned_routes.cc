#include "planner/experts/learned_routes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/json.h"

namespace canopy {

namespace {

constexpr const char* kVersionKey = "canopy_learned_routes";
constexpr int kVersion = 1;

double number_of(const nlohmann::json& json, const char* key, double least, double most) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number() || !(found->get<double>() >= least) ||
      !(found->get<double>() <= most))
    throw Error(std::string("\"") + key + "\" must be a number from " + std::to_string(least) +
                " to " + std::to_string(most));
  return found->get<double>();
}

}  // namespace

void LearnedRoutes::add(const ExpertReads& now, std::int64_t rows, std::uint64_t misses) {
  if (now.bytes == 0 || rows < 1) return;
  const bool full = filled_ >= static_cast<std::uint64_t>(now.stay);
  filled_ += misses;
  if (!full || 2 * misses > static_cast<std::uint64_t>(now.absent())) return;
  const auto power = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(rows)) - 1);
  Sweeps& alike = by_rows_[std::min(power, by_rows_.size() - 1)];
  alike.count += 1;
  alike.misses += static_cast<double>(misses);
  alike.log_rows += std::log(static_cast<double>(rows));
  double all = 0;
  for (const Sweeps& some : by_rows_) all += some.count;
  if (all <= kMostSweeps) return;
  for (Sweeps& some : by_rows_) some = {some.count / 2, some.misses / 2, some.log_rows / 2};
}

RouteHabits LearnedRoutes::habits(const ExpertReads& now) const {
  ExpertReads before = now;
  before.habits = before_;
  ExpertReads table = now;
  table.habits = {};
  const double asked = double{1} * now.layers * now.active;
  const double found = table.hits();
  if (found <= 0 || found >= 1) return before_;  // there, no habits show

  // Least squares for log(misses / asked) = a + g log(rows), about a and g before.
  const auto weight =
      static_cast<double>(std::clamp(sweeps_before_, kLeastBefore, kMostSweeps / 4));
  const double a_before = std::log(1 - before.hits()), g_before = before.growth();
  double aa = weight, ag = 0, gg = weight, a_sum = 0, g_sum = 0;
  for (const Sweeps& some : by_rows_) {
    if (some.count <= 0) continue;
    const double x = some.log_rows / some.count;
    // Half a miss more: of sweeps that read none there is no logarithm.
    const double y = std::log((some.misses + .5) / some.count / asked);
    const double off = y - a_before - g_before * x;
    aa += some.count;
    ag += some.count * x;
    gg += some.count * x * x;
    a_sum += some.count * off;
    g_sum += some.count * x * off;
  }
  const double determinant = aa * gg - ag * ag;
  const double a = a_before + (gg * a_sum - ag * g_sum) / determinant;
  const double g = g_before + (aa * g_sum - ag * a_sum) / determinant;

  constexpr double kOdds = RouteHabits::kMostOdds, kGrowth = RouteHabits::kMostGrowth;
  const double missed = std::exp(std::min(a, 0.0));
  const double odds = (1 - missed) / missed * (1 - found) / found;
  return {std::clamp(odds, 1 / kOdds, kOdds), std::clamp(g - table.growth(), -kGrowth, kGrowth)};
}

std::int64_t LearnedRoutes::sweeps() const {
  double all = static_cast<double>(sweeps_before_);
  for (const Sweeps& some : by_rows_) all += some.count;
  return std::min(static_cast<std::int64_t>(all), kMostSweeps);
}

bool LearnedRoutes::grown() const {
  return std::any_of(by_rows_.begin(), by_rows_.end(),
                     [](const Sweeps& some) { return some.count > 0; });
}

std::string LearnedRoutes::to_json(const ExpertReads& now) const {
  const RouteHabits learned = habits(now);
  return nlohmann::ordered_json{{kVersionKey, kVersion},
                                {"odds", learned.odds},
                                {"growth", learned.growth},
                                {"sweeps", sweeps()}}
             .dump() +
         "\n";
}

LearnedRoutes LearnedRoutes::from_json(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  if (!json.is_object() || json.value(kVersionKey, nlohmann::json()) != kVersion)
    throw Error("this is not what texts have shown of routes, or of another version than " +
                std::to_string(kVersion));
  constexpr double kOdds = RouteHabits::kMostOdds, kGrowth = RouteHabits::kMostGrowth;
  return LearnedRoutes(
      {number_of(json, "odds", 1 / kOdds, kOdds), number_of(json, "growth", -kGrowth, kGrowth)},
      static_cast<std::int64_t>(number_of(json, "sweeps", 0, kMostSweeps)));
}

std::string routes_file_name(const std::string& target) { return "routes-" + target + ".json"; }

}  // namespace canopy
