#include "src/speculation/growers/beam_grower.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"

namespace canopy {

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

BeamGrower::BeamGrower(TokenId root, int beams, int steps, std::optional<StepRng> rng)
    : beams_(beams), steps_(steps), rng_(rng) {
  require(beams >= 1 && steps >= 1, "draft: a beam search has a beam and a step");
  all_.push_back({root});
}

std::vector<BeamGrower::Candidate> BeamGrower::choose(std::span<const DraftedRow> rows) const {
  std::vector<Candidate> candidates;
  // Adding Gumbel noise to log weights and keeping the largest draws without replacement.
  // Source: arXiv:1903.06059, 2.3. Each candidate has a random number of its own.
  const std::uint64_t draws = static_cast<std::uint64_t>(level_) * at(beams_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const int beam = first_ + static_cast<int>(i);
    const std::span<const float> row = rows[i].drawn;
    for (std::size_t t = 0; t < row.size(); ++t) {
      if (!(row[t] > 0)) continue;
      const double log_q = std::log(static_cast<double>(row[t]));
      double key = all_[at(beam)].joint + log_q;
      if (rng_)
        key -= std::log(
            -std::log(rng_->uniform(StepRng::Purpose::kDraft, (draws + i) * row.size() + t)));
      candidates.push_back({key, beam, static_cast<TokenId>(t), log_q});
    }
  }
  const auto kept = std::min(candidates.size(), at(beams_));
  const auto better = [](const Candidate& a, const Candidate& b) {
    if (a.key != b.key) return a.key > b.key;
    return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
  };
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(kept),
                    candidates.end(), better);
  candidates.resize(kept);
  return candidates;
}

std::vector<DraftedNode> BeamGrower::take(std::span<const DraftedRow> rows) {
  require(rows.size() == all_.size() - at(first_), "draft: beams are run a level at a time");
  const std::vector<Candidate> chosen = choose(rows);
  first_ = static_cast<int>(all_.size());
  std::vector<DraftedNode> next;
  for (const Candidate& one : chosen) {
    all_.push_back({one.token, one.beam, one.log_q, all_[at(one.beam)].joint + one.log_q});
    next.push_back({one.token, one.beam});
  }
  return ++level_ < steps_ ? next : std::vector<DraftedNode>{};
}

GrownTree BeamGrower::finish() {
  const auto heavier = [](const Beam& a, const Beam& b) { return a.joint < b.joint; };
  const auto best = std::max_element(all_.begin() + first_, all_.end(), heavier);
  std::vector<int> path;
  for (int beam = static_cast<int>(best - all_.begin()); beam > 0; beam = all_[at(beam)].parent)
    path.insert(path.begin(), beam);
  GrownTree grown{TokenTree(all_.front().token), {0}, {0.0}};
  for (const int beam : path) {
    grown.tree.add_children(grown.tree.size() - 1, {&all_[at(beam)].token, 1});
    grown.run.push_back(beam < first_ ? beam : -1);
    grown.log_q.push_back(all_[at(beam)].log_q);
  }
  return grown;
}

}  // namespace canopy
