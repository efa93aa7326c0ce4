#include "planner/calibrated/chance.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/base/error.h"

namespace canopy {

namespace {

using Matrix = std::array<ChanceVector, kChanceFeatures>;

double log_odds(float probability) {
  const double q = std::clamp(static_cast<double>(probability), 1e-6, 1 - 1e-6);
  return std::log(q / (1 - q));
}

double dot(const ChanceVector& a, const ChanceVector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Solves (a + 1) x = y by Cholesky's method; nothing where a + 1 is not positive definite.
std::optional<ChanceVector> solve_with_ridge(const Matrix& a, const ChanceVector& y) {
  Matrix lower{};
  ChanceVector x{};
  for (std::size_t i = 0; i < kChanceFeatures; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double left = a[i][j] + (i == j ? 1 : 0);
      for (std::size_t k = 0; k < j; ++k) left -= lower[i][k] * lower[j][k];
      if (i != j) {
        lower[i][j] = left / lower[j][j];
      } else if (left > 0) {
        lower[i][i] = std::sqrt(left);
      } else {
        return std::nullopt;
      }
    }
    x[i] = y[i];
    for (std::size_t k = 0; k < i; ++k) x[i] -= lower[i][k] * x[k];
    x[i] /= lower[i][i];
  }
  for (std::size_t i = kChanceFeatures; i-- > 0;) {
    for (std::size_t k = i + 1; k < kChanceFeatures; ++k) x[i] -= lower[k][i] * x[k];
    x[i] /= lower[i][i];
  }
  if (!std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); }))
    return std::nullopt;
  return x;
}

/// ln of the chance of what came of a token, by the log odds that it is written.
double log_chance(double odds, bool written) {
  const double of = written ? odds : -odds;
  return of > 0 ? -std::log1p(std::exp(-of)) : of - std::log1p(std::exp(of));
}

/// Calls take(features, whether it was written) for each rank of each context.
template <class Take>
void for_each_rank(std::span<const ChanceContext> contexts, const Take& take) {
  for (const ChanceContext& context : contexts)
    for (int rank = 1; rank <= context.row.children(); ++rank)
      take(chance_features(context.row, rank), rank == context.written);
}

void scale(ChanceEvidence& evidence, double by) {
  evidence.contexts *= by;
  for (ChanceVector& row : evidence.information)
    for (double& value : row) value *= by;
  for (double& value : evidence.moment) value *= by;
}

/// The evidence as it counts next to `more` later contexts.
ChanceEvidence made_older(ChanceEvidence evidence, double more) {
  const double room = std::max(0.0, ChanceEvidence::kMostContexts - more);
  if (evidence.contexts > room) scale(evidence, room / evidence.contexts);
  return evidence;
}

}  // namespace

const ChanceVector& prior_weights(ChanceKind kind) {
  // Greedy: those of a strong pair, SmolLM2-135M-Instruct and its Q4_0 copy, fitted for this
  // project on texts of 96 tokens: on 12, those of copies on 24 others. Sampled: the draft's own
  // probability.
  static constexpr ChanceVector kOfGreedy{.04,  -.84, .55, -.69, 1.19, 1.16, -.08,
                                          1.19, -.99, 1,   1,    0,    -1.2, 0};
  static constexpr ChanceVector kOfSampled{0, 0, 0, 0, 1};
  return kind == ChanceKind::kGreedy ? kOfGreedy : kOfSampled;
}

ChanceVector chance_features(const RowOfBest& row, int rank) {
  require(rank >= 1 && rank <= row.children() && row.count >= 1 && row.count <= kChanceRanks &&
              row.copied <= row.count + 1,
          "calibrated chance: a row has no token of this rank");
  const double first = rank == 1 ? 1 : 0;
  // A token that is none of the best is at most as likely as the last of them.
  const double odds =
      log_odds(row.probability[static_cast<std::size_t>(std::min(rank, row.count)) - 1]);
  const auto entropy = static_cast<double>(row.entropy);
  const double named = row.copied == rank ? 1 : 0, other = row.copied > 0 ? 1 - named : 0;
  const double length = row.match / 8.0;
  return {1,
          first,
          rank == 2 ? 1.0 : 0.0,
          std::log(static_cast<double>(rank)),
          odds,
          first * odds,
          entropy,
          first * entropy,
          (1 - first) * log_odds(row.probability.front()),
          named,
          named * length,
          other,
          other * length,
          rank > row.count ? 1.0 : 0.0};
}

double chance_of(const ChanceVector& weights, const ChanceVector& features) {
  return std::min(kMostChance, 1 / (1 + std::exp(-dot(weights, features))));
}

void ChanceEvidence::add(const ChanceEvidence& later) {
  *this = made_older(*this, later.contexts);
  contexts += later.contexts;
  for (std::size_t i = 0; i < kChanceFeatures; ++i) {
    moment[i] += later.moment[i];
    for (std::size_t j = 0; j < kChanceFeatures; ++j) information[i][j] += later.information[i][j];
  }
}

ChanceVector ChanceEvidence::weights(const ChanceVector& prior) const {
  ChanceVector of = moment;
  for (std::size_t i = 0; i < of.size(); ++i) of[i] += prior[i];
  return solve_with_ridge(information, of).value_or(prior);
}

bool ChanceEvidence::is_sound() const {
  return contexts >= 0 && contexts <= kMostContexts && solve_with_ridge(information, moment);
}

namespace {

constexpr int kNewtonSteps = 2;  // with one, weights stray by more than their error

/// Finds what contexts add to `older`, by one Newton step from these weights.
ChanceEvidence step_from(const ChanceVector& from, std::span<const ChanceContext> contexts,
                         const ChanceEvidence& older, const ChanceVector& prior) {
  ChanceEvidence more;
  more.contexts = static_cast<double>(contexts.size());
  for_each_rank(contexts, [&](const ChanceVector& x, bool written) {
    const double f = 1 / (1 + std::exp(-dot(from, x)));
    for (std::size_t i = 0; i < kChanceFeatures; ++i) {
      more.moment[i] += x[i] * ((written ? 1 : 0) - f);
      for (std::size_t j = 0; j <= i; ++j) more.information[i][j] += f * (1 - f) * x[i] * x[j];
    }
  });
  for (std::size_t i = 0; i < kChanceFeatures; ++i)
    for (std::size_t j = 0; j < i; ++j) more.information[j][i] = more.information[i][j];
  for (std::size_t i = 0; i < kChanceFeatures; ++i)
    more.moment[i] += dot(more.information[i], from);

  ChanceEvidence all = older;
  all.add(more);
  const ChanceVector to = all.weights(prior);
  const auto log_likelihood = [&](const ChanceVector& w) {
    double sum = 0;
    for_each_rank(contexts, [&](const ChanceVector& x, bool written) {
      sum += log_chance(dot(w, x), written);
    });
    for (std::size_t i = 0; i < kChanceFeatures; ++i)
      sum += w[i] * (older.moment[i] - dot(older.information[i], w) / 2) -
             (w[i] - prior[i]) * (w[i] - prior[i]) / 2;
    return sum;
  };
  constexpr int kHalvings = 20;
  const double least = log_likelihood(from);
  double share = 1;
  ChanceVector reached = to;
  for (int i = 0; i <= kHalvings && !(log_likelihood(reached) >= least); ++i) {
    share = i == kHalvings ? 0 : share / 2;
    for (std::size_t k = 0; k < kChanceFeatures; ++k)
      reached[k] = from[k] + share * (to[k] - from[k]);
  }
  if (share == 1) return more;
  // The moment that makes `reached` the likeliest weights.
  for (std::size_t i = 0; i < kChanceFeatures; ++i)
    more.moment[i] = dot(all.information[i], reached) + reached[i] - prior[i] - older.moment[i];
  return more;
}

}  // namespace

ChanceEvidence evidence_of(std::span<const ChanceContext> contexts, const ChanceEvidence& before,
                           const ChanceVector& prior) {
  constexpr auto kMost = static_cast<std::size_t>(ChanceEvidence::kMostContexts);
  if (contexts.size() > kMost) contexts = contexts.last(kMost);
  const ChanceEvidence older = made_older(before, static_cast<double>(contexts.size()));
  ChanceVector from = before.weights(prior);
  ChanceEvidence more;
  for (int step = 0; step < kNewtonSteps; ++step) {
    more = step_from(from, contexts, older, prior);
    ChanceEvidence all = older;
    all.add(more);
    from = all.weights(prior);
  }
  return more;
}

}  // namespace canopy
