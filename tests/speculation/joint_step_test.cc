// A whole step of MTAD against a slow twin that looks at every text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/speculation/growers/beam_grower.h"
#include "src/speculation/rules/inexact_rule.h"
#include "tests/speculation/grow_on_tables.h"

namespace canopy::testing {
namespace {

constexpr std::size_t kVocab = 3;
constexpr int kTokens = 3;               // of the chain
constexpr int kBeams = kVocab * kVocab;  // so many that the search looks at every text

/// A mistake that the twin may make.
enum class Mistake { kNone, kFirstFailureEnds, kResidual, kUnwarpedDraft };

struct Models {
  Model target, draft;
  Model plain_draft;  // nothing warped
};

Models models(unsigned seed, double temperature) {
  return {random_model(kVocab, 2 * seed, temperature, 1),
          random_model(kVocab, 2 * seed + 1, temperature, 1),
          random_model(kVocab, 2 * seed + 1, 1, 1)};
}

double chance(const Model& model, const Text& text, std::size_t tokens) {
  double product = 1;
  for (std::size_t i = 0; i < tokens; ++i)
    product *= model(Text(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(
                                                           i)))[static_cast<std::size_t>(text[i])];
  return product;
}

/// The twin: of all texts the likeliest by the draft, of its prefixes the longest that passes.
Text kept_by_twin(const Models& models, double tau, Mistake mistake) {
  Texts all;
  continue_alone(models.draft, {}, 1, kTokens, all);
  const auto heavier = [](const auto& a, const auto& b) { return a.second < b.second; };
  const Text text = std::max_element(all.begin(), all.end(), heavier)->first;
  const Model& draft = mistake == Mistake::kUnwarpedDraft ? models.plain_draft : models.draft;
  std::size_t longest = 0;
  for (std::size_t j = 1; j <= text.size(); ++j) {
    const double ratio = chance(models.target, text, j) / chance(draft, text, j);
    if (std::min(1.0, ratio) > tau)
      longest = j;
    else if (mistake == Mistake::kFirstFailureEnds)
      break;
  }
  return {text.begin(), text.begin() + static_cast<std::ptrdiff_t>(longest)};
}

Texts step_of_twin(const Models& models, double tau, bool greedy, Mistake mistake) {
  const Text kept = kept_by_twin(models, tau, mistake);
  std::vector<double> p = models.target(kept);
  const std::vector<double> q = models.draft(kept);
  if (mistake == Mistake::kResidual) {
    for (std::size_t t = 0; t < kVocab; ++t) p[t] = std::max(p[t] - q[t], 0.0);
    if (std::all_of(p.begin(), p.end(), [](double left) { return left == 0; })) p = q;
    normalise(p);
  }
  Texts texts;
  if (greedy) p = warped(p, 0, 1);
  continue_alone([&](const Text&) { return p; }, kept, 1, kept.size() + 1, texts);
  return texts;
}

Texts step(const Models& models, double tau, bool greedy) {
  BeamGrower grower(0, kBeams, kTokens, std::nullopt);
  const GrownTree grown = grow_on_tables(grower, models.draft).tree;
  Texts texts;
  for (Courses courses; courses.next();) {
    std::vector<double> lent;
    EveryChoice choices(courses);
    const auto rows = [&](NodeId node) {
      return std::span(lent = models.target(text_of(grown.tree, node)));
    };
    const Verdict verdict = verify_inexactly(
        grown.tree, {InexactRule::Kind::kJoint, tau},
        {.plain = rows, .p = rows, .q = {}, .greedy = greedy, .log_q = grown.log_q}, choices);
    Text text = text_of(grown.tree, verdict.path.back());
    text.push_back(verdict.next);
    texts[text] += courses.chance();
  }
  return texts;
}

double worst(Mistake mistake) {
  double most = 0;
  for (unsigned seed = 0; seed < 60; ++seed)
    for (const double temperature : {1.0, 0.6})
      for (const double tau : {0.0, 0.1, 0.5, 0.9, 1.0})
        for (const bool greedy : {false, true}) {
          const Models of = models(seed, temperature);
          most = std::max(most,
                          distance(step_of_twin(of, tau, greedy, mistake), step(of, tau, greedy)));
        }
  return most;
}

TEST(JointStep, WritesWhatATwinWritesThatLooksAtEveryText) {
  EXPECT_LT(worst(Mistake::kNone), kExact);
}

TEST(JointStep, IsSeenToDifferWhereAPrefixThatFailsEndsTheChain) {
  EXPECT_GT(worst(Mistake::kFirstFailureEnds), kWrong);
}

TEST(JointStep, IsSeenToDifferWhereItsLastTokenIsOfAResidual) {
  EXPECT_GT(worst(Mistake::kResidual), kWrong);
}

TEST(JointStep, IsSeenToDifferWhereTheDraftIsNotWarpedAsTheTargetIs) {
  EXPECT_GT(worst(Mistake::kUnwarpedDraft), kWrong);
}

TEST(JointStep, KeepsPrefixesThatAreNoLessLikelyThanTheThresholdPromises) {
  for (unsigned seed = 0; seed < 60; ++seed)
    for (const double tau : {0.1, 0.5, 0.9}) {
      const Models of = models(seed, 1);
      for (const auto& [text, weight] : step(of, tau, false)) {
        const std::size_t kept = text.size() - 1;
        // Rows of the draft travel as f32.
        EXPECT_GE(chance(of.target, text, kept), tau * chance(of.draft, text, kept) * (1 - 1e-6));
      }
    }
}

}  // namespace
}  // namespace canopy::testing
