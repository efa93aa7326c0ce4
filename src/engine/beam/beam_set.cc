#include "src/engine/beam/beam_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/error.h"
#include "src/base/log_of_sum.h"

namespace canopy {

namespace {

bool is_heavier(const BeamCandidate& a, const BeamCandidate& b) {
  if (a.log_probability != b.log_probability) return a.log_probability > b.log_probability;
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

std::vector<BeamCandidate> heaviest(std::span<const double> start,
                                    std::span<const std::span<const float>> logits,
                                    std::size_t count, std::span<const TokenId> leave_out) {
  std::vector<BeamCandidate> all;
  for (std::size_t i = 0; i < start.size(); ++i) {
    const double log_sum = log_of_sum(logits[i]);
    require(!std::isnan(log_sum), "logits of a beam are not all finite numbers");
    const auto first = static_cast<std::ptrdiff_t>(all.size());
    for (std::size_t t = 0; t < logits[i].size(); ++t) {
      const auto token = static_cast<TokenId>(t);
      if (!contains(leave_out, token))
        all.push_back({start[i] + (logits[i][t] - log_sum), static_cast<int>(i), token});
    }
    // No beam has more among the heaviest than there are.
    if (all.size() - static_cast<std::size_t>(first) > count) {
      const auto end = first + static_cast<std::ptrdiff_t>(count);
      std::nth_element(all.begin() + first, all.begin() + end, all.end(), is_heavier);
      all.resize(static_cast<std::size_t>(end));
    }
  }
  std::sort(all.begin(), all.end(), is_heavier);
  all.resize(std::min(all.size(), count));
  return all;
}

BeamSet::BeamSet(Limits limits, std::vector<TokenId> ends)
    : limits_(limits), ends_(std::move(ends)), live_(1) {
  require(limits.beams >= 1 && limits.most_tokens >= 1, "a beam search has a beam and a token");
  require(limits.joint == 0 || limits.length_penalty == 0,
          "tokens that are decided together have no length penalty");
}

double BeamSet::score(double log_probability, std::size_t tokens) const {
  return log_probability / std::pow(static_cast<double>(tokens), limits_.length_penalty);
}

void BeamSet::keep(std::vector<FoundText>& found, FoundText text) const {
  const auto behind =
      std::upper_bound(found.begin(), found.end(), text,
                       [](const FoundText& a, const FoundText& b) { return a.score > b.score; });
  found.insert(behind, std::move(text));
  if (found.size() > static_cast<std::size_t>(limits_.beams)) found.pop_back();
}

void BeamSet::extend(std::span<const std::span<const float>> logits) {
  require(logits.size() == live_.size() && !done_, "beams: a row for each of them");
  const auto beams = static_cast<std::size_t>(limits_.beams);
  std::vector<double> start;
  for (const Beam& beam : live_) start.push_back(beam.log_probability);
  // Each beam can end in as many ways as there are end tokens: after them all others are left.
  const auto candidates = heaviest(start, logits, beams * (1 + ends_.size()));

  std::vector<Beam> next;
  const std::size_t length = live_.front().tokens.size() + 1;
  for (std::size_t rank = 0; rank < candidates.size() && next.size() < beams; ++rank) {
    const auto& [log_probability, parent, token] = candidates[rank];
    const bool ends = contains(ends_, token);
    if (ends && rank >= beams) continue;
    std::vector<TokenId> tokens = live_[static_cast<std::size_t>(parent)].tokens;
    tokens.push_back(token);
    if (ends)
      keep(found_, {std::move(tokens), log_probability, score(log_probability, length), true});
    else
      next.push_back({std::move(tokens), log_probability, parent});
  }
  live_ = std::move(next);
  done_ = live_.empty() || length == static_cast<std::size_t>(limits_.most_tokens) ||
          (found_.size() == beams &&
           found_.back().score >= score(candidates.front().log_probability, length));
  if (!done_ && limits_.joint > 0 && length % static_cast<std::size_t>(limits_.joint) == 0)
    decide();
}

void BeamSet::decide() {
  done_ = !found_.empty() && found_.front().log_probability >= live_.front().log_probability;
  if (done_) return;
  live_.resize(1);
  found_.clear();
}

std::vector<FoundText> BeamSet::texts() const {
  std::vector<FoundText> all = found_;
  for (const Beam& beam : live_)
    if (!beam.tokens.empty())
      keep(all, {beam.tokens, beam.log_probability, score(beam.log_probability, beam.tokens.size()),
                 false});
  return all;
}

}  // namespace canopy
