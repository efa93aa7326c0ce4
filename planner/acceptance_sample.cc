#include "planner/acceptance_sample.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/base/error.h"

namespace canopy {
namespace {

using Position = AcceptanceRun::Position;

/// Sums over the positions of each text that count.
struct Sums {
  explicit Sums(std::size_t texts) : value(texts), count(texts) {}
  std::vector<double> value, count;

  /// Texts with a position that counts: the independent ones.
  int groups() const {
    return static_cast<int>(
        std::count_if(count.begin(), count.end(), [](double n) { return n > 0; }));
  }
  double values() const { return total(value); }
  double counts() const { return total(count); }
  double mean() const { return counts() > 0 ? values() / counts() : 0; }
  /// Returns how far text g pulls the mean: mean = sum / count, linearised.
  double pull(std::size_t g) const {
    return counts() > 0 ? (value[g] - mean() * count[g]) / counts() : 0;
  }

 private:
  static double total(const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += v;
    return sum;
  }
};

/// The error of the sum of pull(g) over all texts, of which `groups` have any.
template <class Pull>
Estimate estimate(double mean, int groups, std::size_t texts, const Pull& pull) {
  double squares = 0;
  for (std::size_t g = 0; g < texts; ++g) squares += pull(g) * pull(g);
  return {mean, groups < 2 ? 0 : std::sqrt(groups / (groups - 1.0) * squares), groups};
}

Estimate estimate(const Sums& sums) {
  return estimate(sums.mean(), sums.groups(), sums.count.size(),
                  [&](std::size_t g) { return sums.pull(g); });
}

bool differ(const Sums& a, const Sums& b) {
  constexpr int kEnough = 10;  // texts: the linearised error of fewer is too small
  const int groups = std::min(a.groups(), b.groups());
  const Estimate difference = estimate(a.mean() - b.mean(), groups, a.count.size(),
                                       [&](std::size_t g) { return a.pull(g) - b.pull(g); });
  return groups >= kEnough && std::abs(difference.mean) > difference.half_width();
}

struct Line {
  double slope = 0, misfit = 0;
};
Line fit(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mx = 0, my = 0, xx = 0, xy = 0, misfit = 0;
  for (std::size_t i = 0; i < x.size(); ++i) mx += x[i] / n, my += y[i] / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mx) * (x[i] - mx);
    xy += (x[i] - mx) * (y[i] - my);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double off = y[i] - my - xy / xx * (x[i] - mx);
    misfit += off * off / n;
  }
  return {xy / xx, std::sqrt(misfit)};
}

/// rejected[k]: sums of the chance that none of the first k + 1 children is accepted.
std::optional<PowerLaw> fit_power_law(const std::vector<Sums>& rejected) {
  constexpr double kEnough = 10;  // refusals: a standard error of a third, about
  const std::size_t groups = rejected.front().count.size();
  const auto without = [&](std::size_t k, std::size_t g) {
    const Sums& sums = rejected[k];
    return (sums.values() - sums.value[g]) / (sums.counts() - sums.count[g]);
  };
  std::size_t children = 0;
  for (bool enough = true; children < rejected.size(); ++children) {
    enough = rejected[children].values() >= kEnough;
    for (std::size_t g = 0; g < groups; ++g) enough = enough && without(children, g) > 0;
    if (!enough) break;
  }
  if (children < 3) return std::nullopt;

  std::vector<double> x, y;
  for (std::size_t k = 0; k < children; ++k) {
    x.push_back(std::log(static_cast<double>(k + 1)));
    y.push_back(std::log(rejected[k].mean()));
  }
  const Line line = fit(x, y);
  double mean = 0, squares = 0;  // of the slopes with a text left out: the jackknife
  std::vector<double> slopes;
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t k = 0; k < children; ++k) y[k] = std::log(without(k, g));
    slopes.push_back(fit(x, y).slope);
    mean += slopes.back() / static_cast<double>(groups);
  }
  for (const double slope : slopes) squares += (slope - mean) * (slope - mean);
  const auto n = static_cast<double>(groups);
  return PowerLaw{-line.slope, std::sqrt((n - 1) / n * squares), line.misfit,
                  static_cast<int>(children)};
}

/// Positions that count, each with its text and the run up to it.
class Sample {
 public:
  Sample(std::span<const AcceptanceRun> runs, Loops loops) : runs_(runs), loops_(loops) {
    for (const AcceptanceRun& run : runs) {
      for (const Position& position : run.positions) {
        if (children_ == 0) children_ = position.accept.size();
        require(position.accept.size() == children_ && children_ > 0,
                "acceptance: the positions of a sample must have equally many children");
        if (counts(position)) group_.try_emplace(run.text, group_.size());
      }
    }
    require(group_.size() >= 2,
            "acceptance: fewer than two texts have a position to measure at: nothing would tell "
            "how far texts differ");
  }
  std::size_t children() const { return children_; }
  std::size_t texts() const { return group_.size(); }

  /// visit(position, its text, the positions of its run before it)
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const AcceptanceRun& run : runs_)
      for (std::size_t i = 0; i < run.positions.size(); ++i)
        if (const Position& position = run.positions[i]; counts(position))
          visit(position, group_.at(run.text), std::span(run.positions).first(i));
  }

 private:
  bool counts(const Position& p) const { return loops_ == Loops::kWith || !p.in_loop; }

  std::span<const AcceptanceRun> runs_;
  Loops loops_;
  std::size_t children_ = 0;
  std::map<int, std::size_t> group_;  // of a text that counts
};

double sum(const std::vector<double>& x) {
  double total = 0;
  for (const double v : x) total += v;
  return total;
}

/// Groups by successes in a row: taken children of rank below `ranks`.
std::vector<AcceptanceAfter> by_depth(const Sample& sample, int ranks) {
  std::vector<Sums> first(kDepths + 1, Sums(sample.texts())), any = first;
  std::vector<AcceptanceAfter> depths(kDepths + 1);
  sample.for_each([&](const Position& here, std::size_t g, std::span<const Position> before) {
    for (std::size_t d = 0; d <= kDepths; ++d) {
      first[d].value[g] += here.accept[0];
      any[d].value[g] += sum(here.accept);
      first[d].count[g] += 1;
      any[d].count[g] += 1;
      ++depths[d].positions;
      if (d == before.size()) break;
      const int taken = before[before.size() - 1 - d].taken;
      if (taken < 0 || taken >= ranks) break;
    }
  });
  for (std::size_t d = 0; d <= kDepths; ++d) {
    depths[d].depth = static_cast<int>(d);
    depths[d].first = estimate(first[d]);
    depths[d].any = estimate(any[d]);
    depths[d].first_is_off = differ(first[d], first[0]);
    depths[d].any_is_off = differ(any[d], any[0]);
  }
  return depths;
}

/// Vectors of the levels below the root.
std::vector<std::vector<double>> by_level(const Sample& sample) {
  constexpr int kLevels = AcceptanceEstimate::kLevels;
  struct Level {
    std::vector<double> accepted;
    double asked = 0;  // sum of weights
    int positions = 0;
    void add(double weight, const std::vector<double>& accept) {
      asked += weight;
      ++positions;
      for (std::size_t k = 0; k < accept.size(); ++k) accepted[k] += accept[k];
    }
  };
  std::vector<Level> sums(kLevels, {std::vector<double>(sample.children(), 0.0)});
  sample.for_each([&](const Position& here, std::size_t, std::span<const Position> before) {
    if (const WeightedStep& step = here.weighted; !step.accept.empty()) {
      if (step.level > 0)
        sums.at(static_cast<std::size_t>(step.level) - 1).add(step.weight, step.accept);
      return;
    }
    for (std::size_t d = 0; d < kLevels && d < before.size(); ++d) {
      if (before[before.size() - 1 - d].taken < 0) break;
      sums[d].add(1, here.accept);
    }
  });
  std::vector<std::vector<double>> levels;
  for (Level& level : sums) {
    if (level.positions < AcceptanceEstimate::kEnoughFor || !(level.asked > 0)) break;
    // Draws that are more often accepted than the weights allow would make it more than 1.
    const double total = std::max(level.asked, sum(level.accepted));
    for (double& p : level.accepted) p /= total;
    levels.push_back(std::move(level.accepted));
  }
  return levels;
}

}  // namespace

WeightedStep WeightedStep::next() const {
  if (level == AcceptanceEstimate::kLevels) return {};
  return {level + 1, accept.front(), {}};
}

std::vector<bool> find_loops(std::span<const TokenId> text) {
  std::vector<bool> loops(text.size() + 1);
  for (std::size_t period = 1; period <= kLoopPeriod; ++period) {
    std::size_t repeated = 0;  // tokens in a row that equal the one a period before
    for (std::size_t i = period; i < text.size(); ++i) {
      repeated = text[i] == text[i - period] ? repeated + 1 : 0;
      if (repeated >= (kLoopRounds - 1) * period) loops[i + 1] = true;
    }
  }
  return loops;
}

double Estimate::half_width() const {
  if (groups < 2) return INFINITY;
  // Student's 97.5% point in powers of 1 / degrees of freedom (Abramowitz & Stegun, 26.7.5): within
  // 1% from three degrees on, and known for the two below.
  constexpr double kFew[] = {12.706, 4.303};
  const double v = groups - 1;
  const double t =
      groups <= 3 ? kFew[groups - 2] : 1.95996 + (2.37227 + (2.8225 + 2.55585 / v) / v) / v;
  return t * error;
}

AcceptanceEstimate estimate_acceptance(std::span<const AcceptanceRun> runs, Loops loops) {
  const Sample sample(runs, loops);
  std::vector<Sums> accepted(sample.children(), Sums(sample.texts())), rejected = accepted;
  AcceptanceEstimate out;
  out.taken.resize(sample.children());
  Sums overlaps(sample.texts());
  double squares = 0;
  sample.for_each([&](const Position& here, std::size_t g, std::span<const Position>) {
    ++out.positions;
    overlaps.value[g] += here.overlap;
    overlaps.count[g] += 1;
    squares += here.overlap * here.overlap;
    double left = 1;
    for (std::size_t k = 0; k < here.accept.size(); ++k) {
      left -= here.accept[k];
      accepted[k].value[g] += here.accept[k];
      accepted[k].count[g] += 1;
      rejected[k].value[g] += std::max(left, 0.0);
      rejected[k].count[g] += 1;
    }
    if (here.taken >= 0) ++out.taken.at(static_cast<std::size_t>(here.taken));
  });
  out.runs = static_cast<int>(runs.size());
  out.texts = static_cast<int>(sample.texts());
  for (const Sums& sums : accepted) out.accept.push_back(estimate(sums));
  for (const Sums& sums : rejected) out.reject.push_back(estimate(sums));
  out.alpha = estimate(overlaps);
  out.overlap_variance =
      std::max(0.0, squares / static_cast<double>(out.positions) - out.alpha.mean * out.alpha.mean);
  out.deeper = by_level(sample);
  out.power_law = fit_power_law(rejected);
  out.after_any = by_depth(sample, static_cast<int>(sample.children()));
  out.after_first = by_depth(sample, 1);
  return out;
}

}  // namespace canopy
