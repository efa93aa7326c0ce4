#include "src/measure/steps/fitted_costs.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"

namespace canopy {

namespace {

Sample sum_of(std::span<const Sample> samples) {
  Sample sum;
  for (const Sample& sample : samples) sum = {sum.x + sample.x, sum.t + sample.t};
  return sum;
}

/// Seconds per token of text that is seen: what the times grow by, from no text to some. `window`:
/// the most tokens that are; 0: all.
Seconds slope_of(std::span<const Sample> samples, int window) {
  std::vector<Seconds> near;
  for (const Sample& sample : samples)
    if (sample.x == 0) near.push_back(sample.t);
  require(!near.empty(), "attention without a text was not timed");
  const Seconds without = median(near);
  std::vector<Seconds> slopes;
  for (const Sample& sample : samples)
    if (sample.x > 0)
      slopes.push_back(std::max(Seconds(0), sample.t - without) /
                       (window == 0 ? sample.x : std::min<double>(sample.x, window)));
  require(!slopes.empty(), "attention to a text was not timed");
  return median(slopes);
}

/// Forwards of which one was timed with one row, and with kRowsAfterText; `before` it others of a
/// row each. Where there was no room for as many, each is taken to cost what one does.
ContextCost context_cost(std::span<const Sample> of_one, std::span<const Sample> of_many,
                         int window, int before) {
  const Seconds one = slope_of(of_one, window);
  if (of_many.empty()) return {Seconds(0), one / (1 + before)};
  const Seconds per_row =
      std::max(Seconds(0), (slope_of(of_many, window) - one) / (kRowsAfterText - 1));
  return {std::max(Seconds(0), one / (1 + before) - per_row), per_row};
}

/// Puts the costs of a text to a kind of layer. `window`: as slope_of()'s.
void put_context(const MeasuredSamples& samples, std::size_t kind, int window,
                 HardwareProfile::LayerCosts& layer) {
  const auto cost = [&](const char* of_one, const char* of_many) {
    return context_cost(samples.all(of_kind(of_one, kind)), samples.all(of_kind(of_many, kind)),
                        window, 0);
  };
  layer.context = cost(kTextOfOne, kText);
  if (!samples.all(of_kind(kTextAtRest, kind)).empty())
    layer.context_at_rest = cost(kTextOfOneAtRest, kTextAtRest);
}

Curve level_curve(std::span<const Sample> trees) {
  std::vector<Seconds> of_one;
  for (const Sample& sample : trees)
    if (sample.x == 1) of_one.push_back(sample.t);
  require(!of_one.empty(), "the narrowest tree was not timed");
  const Seconds root = median(of_one) / 2;
  std::vector<Sample> levels;
  for (const Sample& sample : trees)
    levels.push_back({sample.x, std::max(Seconds(0), sample.t - root)});
  return Curve::fit(levels);
}

}  // namespace

std::string of_kind(const char* name, std::size_t kind) {
  return kind == 0 ? name : std::string(name) + " of kind " + std::to_string(kind);
}

const char* name_of(Drawing drawing) {
  return drawing == Drawing::kTopK ? "level, greedy" : "level, sampled";
}

Seconds median(std::vector<Seconds> times) {
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

double rate_of(std::span<const Sample> samples) {
  const Sample sum = sum_of(samples);
  return sum.t.count() > 0 ? sum.x / sum.t.count() : 0;
}

double slowing_of(std::span<const Sample> samples) {
  constexpr double kMore = 1.25;  // times the first's arithmetic: the rest is noise
  constexpr double kMost = 0.9;
  std::vector<Seconds> slopes;
  for (const Sample& sample : samples.subspan(std::min<std::size_t>(samples.size(), 1)))
    if (sample.x > kMore * samples.front().x)
      slopes.push_back((sample.t - samples.front().t) / (sample.x - samples.front().x));
  return slopes.empty() ? 0 : std::clamp(median(std::move(slopes)).count(), 0.0, kMost);
}

void put_costs(const MeasuredSamples& samples, std::span<const LayerConfig> kinds,
               HardwareProfile& profile) {
  profile.link_bytes_per_second = rate_of(samples.all(kLink));
  if (const auto timed = samples.all(kLinkWhileComputing); !timed.empty()) {
    profile.link_slowing = slowing_of(timed);
    // It was timed next to single rows.
    profile.link_bytes_per_second /=
        1 - profile.link_slowing * std::min(1.0, timed.front().x / timed.front().t.count());
  }
  profile.upload_bytes_per_second = rate_of(samples.all(kUpload));
  profile.embed = Curve::fit(samples.all(kEmbed));
  profile.layers.assign(kinds.size(), {});
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    HardwareProfile::LayerCosts& layer = profile.layers[kind];
    if (const auto timed = samples.all(of_kind(kAttention, kind)); !timed.empty()) {
      layer.attention = Curve::fit(timed);
      if (kinds[kind].attention)  // a delta net's step is the same after any text
        put_context(samples, kind, kinds[kind].window, layer);
    }
    if (const auto timed = samples.all(of_kind(kMlp, kind)); !timed.empty())
      layer.mlp = Curve::fit(timed);
  }
  profile.head = Curve::fit(samples.all(kHead));
  if (const auto timed = samples.all(kTimedAtRest); !timed.empty())
    profile.at_rest = Curve::fit(timed);
  std::vector<Seconds> verify = samples.times(kVerify, 1);
  require(!verify.empty(), "verification was not timed");
  profile.verify = median(std::move(verify));
  if (samples.all(kDraftTextOfOne).empty()) return;
  profile.drafting = {level_curve(samples.all(name_of(Drawing::kTopK))),
                      level_curve(samples.all(name_of(Drawing::kSequoia))),
                      context_cost(samples.all(kDraftTextOfOne), samples.all(kDraftText), 0, 1)};
}

}  // namespace canopy
