#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "kernels/draw.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

/// Token ids by descending logit, equal logits by lower id.
std::vector<std::size_t> ranked(const float* logits, std::size_t n) {
  std::vector<std::size_t> ids(n);
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  return ids;
}

/// Returns how many of these weights, in their order, make up `share` of their sum; the last
/// crosses it. Lowers `margin` to how far the cut was from falling elsewhere.
std::size_t that_make_up(double share, const std::vector<double>& weights, double& margin) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0;
  std::size_t r = 0;
  while (r < weights.size() && reached < share * total) {
    reached += weights[r++];
    margin = std::min(margin, std::abs(reached / total - share));
  }
  return r;
}

/// Keeps of the tokens, whose weights these are, those that typical-p keeps.
void keep_typical(double share, std::vector<std::size_t>& ids, std::vector<double>& weights,
                  double& margin) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double entropy = 0;
  for (const double w : weights) entropy -= w / total * std::log(w / total);
  std::vector<std::size_t> order(ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto off = [&](std::size_t i) { return std::abs(-std::log(weights[i] / total) - entropy); };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return off(a) != off(b) ? off(a) < off(b) : ids[a] < ids[b];
  });
  std::vector<std::size_t> sorted_ids;
  std::vector<double> sorted;
  for (const std::size_t i : order) {
    sorted_ids.push_back(ids[i]);
    sorted.push_back(weights[i]);
  }
  const std::size_t kept = that_make_up(share, sorted, margin);
  // The order of the last that is kept and the first that is not may be a matter of rounding.
  if (kept < order.size()) margin = std::min(margin, off(order[kept]) - off(order[kept - 1]));
  sorted_ids.resize(kept);
  sorted.resize(kept);
  ids = sorted_ids;
  weights = sorted;
}

/// The definition, in f64. `margin` is how far the cuts were from falling elsewhere.
std::vector<double> reference(const float* logits, std::size_t n, Sampling sampling,
                              double& margin) {
  std::vector<std::size_t> ids = ranked(logits, n);
  std::vector<double> p(n);
  margin = 1;
  if (sampling.temperature == 0) {
    p[ids[0]] = 1;
    return p;
  }
  if (sampling.top_k > 0) ids.resize(std::min(n, static_cast<std::size_t>(sampling.top_k)));
  std::vector<double> weights;
  for (const std::size_t id : ids)
    weights.push_back(
        std::exp((static_cast<double>(logits[id]) - static_cast<double>(logits[ids[0]])) /
                 static_cast<double>(sampling.temperature)));
  if (sampling.top_p < 1)
    weights.resize(that_make_up(static_cast<double>(sampling.top_p), weights, margin));
  const auto least = static_cast<double>(sampling.min_p);
  for (const double w : weights)
    if (least > 0) margin = std::min(margin, std::abs(w / least - 1));
  while (weights.back() < least) weights.pop_back();
  ids.resize(weights.size());
  if (sampling.typical_p < 1)
    keep_typical(static_cast<double>(sampling.typical_p), ids, weights, margin);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t r = 0; r < ids.size(); ++r) p[ids[r]] = weights[r] / total;
  return p;
}

/// The rule of kernels/draw.h in plain loops, with nothing kept from one draw to the next: the
/// token where what is left, summed part by part, first exceeds u of it all.
std::vector<std::int32_t> walked(Replacement replacement, std::vector<float> left,
                                 std::size_t count, const StepRng& rng, std::uint64_t first) {
  const std::size_t n = left.size();
  std::vector<std::int32_t> tokens;
  const auto some = [&](std::size_t i) { return left[i] > 0 ? static_cast<double>(left[i]) : 0; };
  for (std::size_t c = 0; c < count; ++c) {
    std::vector<double> parts;
    for (std::size_t begin = 0; begin < n; begin += kDrawPart) {
      double lanes[8] = {};
      for (std::size_t i = begin; i < std::min(n, begin + kDrawPart); ++i) lanes[i % 8] += some(i);
      parts.push_back(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                      ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
    }
    const double u = rng.uniform(StepRng::Purpose::kDraft, first + c);
    const double target = u * std::accumulate(parts.begin(), parts.end(), 0.0);
    double below = 0;
    std::size_t part = 0;
    for (; part + 1 < parts.size() && below + parts[part] <= target; ++part) below += parts[part];
    std::size_t token = n;
    for (std::size_t i = part * kDrawPart; i < std::min(n, (part + 1) * kDrawPart); ++i) {
      if (some(i) == 0) continue;
      token = i;
      if ((below += some(i)) > target) break;
    }
    for (std::size_t i = part * kDrawPart; token == n && i-- > 0;)
      if (some(i) > 0) token = i;
    for (std::size_t i = part * kDrawPart; token == n && i < n; ++i)
      if (some(i) > 0) token = i;
    if (token == n) {  // the support is used up: any of the others
      std::vector<std::size_t> others;
      for (std::size_t i = 0; i < n; ++i)
        if (left[i] >= 0) others.push_back(i);
      token = others[std::min(others.size() - 1,
                              static_cast<std::size_t>(u * static_cast<double>(others.size())))];
    }
    tokens.push_back(static_cast<std::int32_t>(token));
    if (replacement == Replacement::kNo) left[token] = -1.0f;
  }
  return tokens;
}

class SamplingOps : public OnEachDevice {
 protected:
  std::vector<float> probabilities(const std::vector<float>& logits, std::size_t rows,
                                   Sampling sampling) {
    const std::size_t n = logits.size() / rows;
    OnDevice from = send(logits), to = send(std::vector<float>(logits.size(), -1.0f));
    ops().probabilities(stream(), from.view(DType::kF32, {dim(rows), dim(n)}), sampling,
                        to.view(DType::kF32, {dim(rows), dim(n)}));
    return to.read<float>();
  }
  struct Best {
    std::vector<std::int32_t> token;
    std::vector<float> probability, entropy;
  };
  Best best_of(const std::vector<float>& logits, std::size_t rows, std::size_t count,
               float temperature) {
    const std::size_t n = logits.size() / rows;
    OnDevice from = send(logits), token = send(std::vector<std::int32_t>(rows * count, -7)),
             p = send(std::vector<float>(rows * count, -7.0f)),
             entropy = send(std::vector<float>(rows, -7.0f));
    ops().top_probabilities(
        stream(), from.view(DType::kF32, {dim(rows), dim(n)}), temperature,
        {token.view(DType::kI32, {dim(rows), dim(count)}),
         p.view(DType::kF32, {dim(rows), dim(count)}), entropy.view(DType::kF32, {dim(rows)})});
    return {token.read<std::int32_t>(), p.read<float>(), entropy.read<float>()};
  }
  std::vector<std::int32_t> draw(Replacement replacement, const std::vector<float>& q,
                                 std::size_t rows, std::size_t count, StepRng rng,
                                 std::uint64_t first = 0) {
    const std::size_t n = q.size() / rows;
    OnDevice from = send(q), to = send(std::vector<std::int32_t>(rows * count, -1));
    ops().draw_tokens(stream(), from.view(DType::kF32, {dim(rows), dim(n)}),
                      static_cast<int>(count), replacement, rng, first,
                      to.view(DType::kI32, {dim(rows), dim(count)}));
    return to.read<std::int32_t>();
  }
};

TEST_P(SamplingOps, ProbabilitiesFollowTemperatureThenEachCutInItsOrder) {
  std::mt19937 random(1);
  int compared = 0;
  on_each_instruction_set([&] {
    for (const std::size_t n : {1, 5, 64, 1001, 20000})
      for (const Sampling sampling :
           {Sampling{1.0f, 0, 1.0f}, Sampling{0.6f, 0, 0.9f}, Sampling{1.0f, 40, 1.0f},
            Sampling{0.7f, 40, 0.95f}, Sampling{5.0f, 0, 0.5f}, Sampling{0.0f, 3, 0.5f},
            Sampling{0.05f, 0, 0.99f}, Sampling{1.0f, 1, 0.9f}, Sampling{1.0f, 0, 1.0f, 0.05f},
            Sampling{2.0f, 40, 1.0f, 0.3f}, Sampling{4.0f, 0, 0.9f, 0.1f},
            Sampling{5.0f, 0, 1.0f, 0.0f, 0.5f}, Sampling{1.0f, 0, 1.0f, 0.0f, 0.2f},
            Sampling{3.0f, 40, 0.95f, 0.02f, 0.7f}}) {
        SCOPED_TRACE(testing::Message()
                     << "n " << n << " temperature " << sampling.temperature << " k "
                     << sampling.top_k << " p " << sampling.top_p << " min-p " << sampling.min_p
                     << " typical " << sampling.typical_p);
        const std::size_t rows = 3;
        const std::vector<float> logits = random_floats(rows * n, random, 12.0f);
        const std::vector<float> p = probabilities(logits, rows, sampling);
        for (std::size_t i = 0; i < rows; ++i) {
          double margin = 0;
          const std::vector<double> want = reference(&logits[i * n], n, sampling, margin);
          // f32 logits differ by at most 24; dividing by the temperature and exp lose 1 and 4 eps
          // of their argument and value; two more roundings follow.
          const double spread =
              sampling.temperature > 0 ? 24 / static_cast<double>(sampling.temperature) : 0;
          const double relative = (2 * spread + 6) * 0x1p-24;
          if (margin < relative) continue;  // rounding may move a cut by a token
          ++compared;
          for (std::size_t t = 0; t < n; ++t)
            ASSERT_NEAR(p[i * n + t], want[t], relative * want[t] + 0x1p-126) << "token " << t;
        }
      }
  });
  EXPECT_GT(compared, 150);
}

TEST_P(SamplingOps, MinPOfOneKeepsTheLikeliestAlone) {
  EXPECT_EQ(probabilities({1, 3, 2, 3}, 1, {1.0f, 0, 1.0f, 1.0f}),
            (std::vector<float>{0, 0.5f, 0, 0.5f}));
}

TEST_P(SamplingOps, TypicalPKeepsWhatIsAsLikelyAsTokensAreOnAverage) {
  std::vector<float> logits(9, 0.0f);
  logits[4] = std::log(2.0f);
  const std::vector<float> p = probabilities(logits, 1, {1.0f, 0, 1.0f, 0.0f, 0.45f});
  // The entropy is log 10 - 0.2 log 2: the eight, of 0.1 each, are nearer than the one of 0.2. Five
  // of them make up 0.45.
  for (std::size_t t = 0; t < 9; ++t) {
    const bool kept = t < 4 || t == 5;
    EXPECT_NEAR(p[t], kept ? 0.2f : 0.0f, 2e-7f) << t;
  }
}

TEST_P(SamplingOps, EqualLogitsAreKeptByLowerId) {
  const std::vector<float> logits = {1, 3, 2, 3, 3, 2, -0.0f, 0.0f};
  EXPECT_EQ(probabilities(logits, 1, {0.0f, 0, 1.0f}),
            (std::vector<float>{0, 1, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(probabilities(logits, 1, {1.0f, 2, 1.0f}),
            (std::vector<float>{0, 0.5f, 0, 0.5f, 0, 0, 0, 0}));
  // Four of eight equal tokens are half the mass; the token that crosses p stays.
  const std::vector<float> equal(8, 2.0f);
  EXPECT_EQ(probabilities(equal, 1, {1.0f, 0, 0.5f}),
            (std::vector<float>{0.25f, 0.25f, 0.25f, 0.25f, 0, 0, 0, 0}));
  EXPECT_EQ(probabilities(equal, 1, {1.0f, 0, 0.0001f}),
            (std::vector<float>{1, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_P(SamplingOps, ARowsProbabilitiesDoNotDependOnOtherRows) {
  std::mt19937 random(2);
  const std::size_t rows = 9, n = 3001;
  const std::vector<float> logits = random_floats(rows * n, random, 10.0f);
  const std::vector<float> all = probabilities(logits, rows, {0.8f, 0, 0.9f});
  for (std::size_t i = 0; i < rows; ++i) {
    const auto at = logits.begin() + dim(i * n);
    const std::vector<float> one = probabilities({at, at + dim(n)}, 1, {0.8f, 0, 0.9f});
    ASSERT_EQ(std::memcmp(one.data(), &all[i * n], n * sizeof(float)), 0);
  }
}

TEST_P(SamplingOps, TopTokensEqualAStableSort) {
  std::mt19937 random(3);
  on_each_instruction_set([&] {
    for (const std::size_t n : {1, 7, 100, 5003})
      for (const std::size_t count : {1, 2, 7, 64}) {
        if (count > n) continue;
        const std::size_t rows = 4;
        std::vector<float> logits = random_floats(rows * n, random, 3.0f);
        for (float& logit : logits) logit = std::round(logit * 8) / 8;  // many ties
        OnDevice from = send(logits), to = send(std::vector<std::int32_t>(rows * count));
        ops().top_tokens(stream(), from.view(DType::kF32, {dim(rows), dim(n)}),
                         static_cast<int>(count), to.view(DType::kI32, {dim(rows), dim(count)}));
        const std::vector<std::int32_t> got = to.read<std::int32_t>();
        for (std::size_t i = 0; i < rows; ++i) {
          const std::vector<std::size_t> want = ranked(&logits[i * n], n);
          for (std::size_t c = 0; c < count; ++c)
            ASSERT_EQ(got[i * count + c], static_cast<std::int32_t>(want[c]));
        }
      }
  });
}

TEST_P(SamplingOps, TopProbabilitiesAreThoseOfTheWholeRow) {
  std::mt19937 random(5);
  on_each_instruction_set([&] {
    for (const std::size_t n : {1, 5, 16, 17, 1001, 20000})
      for (const float temperature : {1.0f, 0.6f, 0.05f})
        for (const std::size_t count : {1, 5, 16}) {
          if (count > n) continue;
          SCOPED_TRACE(testing::Message() << count << " of " << n << " at " << temperature);
          const std::size_t rows = 3;
          std::vector<float> logits = random_floats(rows * n, random, 12.0f);
          for (float& logit : logits) logit = std::round(logit * 8) / 8;  // ties
          if (n > 20) logits[7] = -1e30f;  // a token that is not allowed: 0 times minus infinity
          const Best got = best_of(logits, rows, count, temperature);
          for (std::size_t i = 0; i < rows; ++i) {
            const std::vector<std::size_t> want = ranked(&logits[i * n], n);
            double margin = 0;
            const std::vector<double> p =
                reference(&logits[i * n], n, {.temperature = temperature}, margin);
            double entropy = 0;
            for (const double one : p) entropy -= one > 0 ? one * std::log(one) : 0;
            // As for probabilities; an entropy has the error of a spread's ln p.
            const double spread = 24 / static_cast<double>(temperature);
            const double relative = (2 * spread + 6) * 0x1p-24;
            for (std::size_t c = 0; c < count; ++c) {
              ASSERT_EQ(got.token[i * count + c], static_cast<std::int32_t>(want[c]));
              ASSERT_NEAR(got.probability[i * count + c], p[want[c]],
                          relative * p[want[c]] + 0x1p-126);
            }
            ASSERT_NEAR(got.entropy[i], entropy, relative * (1 + spread));
          }
        }
  });
}

TEST_P(SamplingOps, EntropyIsInNatsAndARowsBestDoNotDependOnOtherRows) {
  const Best even = best_of(std::vector<float>(8, 2.0f), 1, 4, 1.0f);
  EXPECT_NEAR(even.entropy[0], std::log(8.0), 1e-6);
  EXPECT_EQ(even.probability, std::vector<float>(4, 0.125f));
  EXPECT_EQ(even.token, (std::vector<std::int32_t>{0, 1, 2, 3}));
  std::mt19937 random(6);
  const std::size_t rows = 7, n = 3001, count = 16;
  const std::vector<float> logits = random_floats(rows * n, random, 10.0f);
  const Best all = best_of(logits, rows, count, 0.8f);
  for (std::size_t i = 0; i < rows; ++i) {
    const auto at = logits.begin() + dim(i * n);
    const Best one = best_of({at, at + dim(n)}, 1, count, 0.8f);
    EXPECT_EQ(
        std::memcmp(one.probability.data(), &all.probability[i * count], count * sizeof(float)), 0);
    EXPECT_EQ(one.entropy[0], all.entropy[i]);
  }
}

TEST_P(SamplingOps, ARowThatIsNotAllFiniteHasNoTokenAndNoProbability) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::mt19937 random(4);
  on_each_instruction_set([&] {
    for (const std::size_t n : {1, 7, 100, 5003})
      for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity})
        for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
          SCOPED_TRACE(testing::Message() << n << " logits, number " << at << " is " << bad);
          const std::size_t rows = 3;  // the second is bad
          std::vector<float> logits = random_floats(rows * n, random, 3.0f);
          logits[n + at] = bad;
          for (const std::size_t count : {std::size_t{1}, std::min<std::size_t>(n, 5)}) {
            OnDevice from = send(logits), to = send(std::vector<std::int32_t>(rows * count));
            ops().top_tokens(stream(), from.view(DType::kF32, {dim(rows), dim(n)}),
                             static_cast<int>(count),
                             to.view(DType::kI32, {dim(rows), dim(count)}));
            const auto tokens = to.read<std::int32_t>();
            for (std::size_t i = 0; i < tokens.size(); ++i)
              EXPECT_EQ(tokens[i] == -1, i / count == 1) << tokens[i];
            const Best best = best_of(logits, rows, count, 1.0f);
            EXPECT_EQ(best.token, tokens);
            for (std::size_t i = 0; i < tokens.size(); ++i)
              EXPECT_EQ(std::isnan(best.probability[i]), i / count == 1);
            for (std::size_t i = 0; i < rows; ++i) EXPECT_EQ(std::isnan(best.entropy[i]), i == 1);
          }
          for (const Sampling sampling : {Sampling{0.0f, 0, 1.0f}, Sampling{1.0f, 0, 1.0f},
                                          Sampling{0.6f, 2, 1.0f}, Sampling{0.6f, 0, 0.5f}}) {
            const std::vector<float> p = probabilities(logits, rows, sampling);
            for (std::size_t i = 0; i < p.size(); ++i) ASSERT_EQ(std::isnan(p[i]), i / n == 1);
          }
        }
  });
}

TEST_P(SamplingOps, DrawsAreDistinctAndInTheSupportUntilItIsUsedUp) {
  std::mt19937 random(4);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const std::size_t n = 700, support = 1 + random() % 6, count = 12;
    std::vector<float> q(n);
    std::set<std::int32_t> positive;
    while (positive.size() < support) {
      const std::size_t t = random() % n;
      // Masses far apart: what is left after a draw may be 30 orders of magnitude smaller.
      q[t] = std::ldexp(1.0f, -static_cast<int>(random() % 100));
      positive.insert(static_cast<std::int32_t>(t));
    }
    const std::vector<std::int32_t> drawn = draw(Replacement::kNo, q, 1, count, {seed, 0, 0});
    const std::set<std::int32_t> distinct(drawn.begin(), drawn.end());
    EXPECT_EQ(distinct.size(), count);
    EXPECT_GE(*distinct.begin(), 0);
    EXPECT_LT(*distinct.rbegin(), static_cast<std::int32_t>(n));
    EXPECT_EQ(std::set<std::int32_t>(drawn.begin(), drawn.begin() + dim(support)), positive);
  }
}

TEST_P(SamplingOps, AllTokensOfAVocabularyCanBeDrawn) {
  const std::vector<std::int32_t> drawn =
      draw(Replacement::kNo, std::vector<float>(300, 0.0f), 1, 300, {9, 0, 0});
  EXPECT_EQ(std::set<std::int32_t>(drawn.begin(), drawn.end()).size(), 300u);
}

TEST_P(SamplingOps, PairsOfDrawsFollowTheirLaw) {
  // All ordered pairs of 5 tokens, one of which has no mass: with replacement P(a, b) = q_a q_b,
  // without q_a q_b / (1 - q_a).
  const std::vector<float> q = {0.5f, 0.0f, 0.25f, 0.125f, 0.125f};
  constexpr std::size_t kRows = 20000;
  std::vector<float> rows;
  for (std::size_t i = 0; i < kRows; ++i) rows.insert(rows.end(), q.begin(), q.end());
  for (const Replacement replacement : {Replacement::kNo, Replacement::kYes}) {
    const bool twice = replacement == Replacement::kYes;
    SCOPED_TRACE(twice ? "with replacement" : "without replacement");
    const std::vector<std::int32_t> drawn = draw(replacement, rows, kRows, 2, {123, 0, 7});
    std::vector<double> seen(25);
    for (std::size_t i = 0; i < kRows; ++i)
      ++seen[static_cast<std::size_t>(drawn[2 * i] * 5 + drawn[2 * i + 1])];
    double chi_square = 0;
    for (std::size_t a = 0; a < 5; ++a)
      for (std::size_t b = 0; b < 5; ++b) {
        const double qa = static_cast<double>(q[a]), qb = static_cast<double>(q[b]);
        const double chance = twice ? qa * qb : a == b ? 0 : qa * qb / (1 - qa);
        if (chance == 0) {
          EXPECT_EQ(seen[a * 5 + b], 0) << a << " then " << b;
        } else {
          chi_square += std::pow(seen[a * 5 + b] - kRows * chance, 2) / (kRows * chance);
        }
      }
    // Exceeded once in 10,000 seeds: 16 pairs with replacement, 12 without.
    EXPECT_LT(chi_square, twice ? 44.3 : 37.4);
  }
}

TEST_P(SamplingOps, DrawsAreThoseOfAPlainWalk) {
  std::mt19937 random(8);
  // The last has more parts than a block has threads.
  for (const std::size_t n : {1, 7, 255, 256, 257, 3000, 300000})
    for (const bool few : {false, true})
      for (const Replacement replacement : {Replacement::kNo, Replacement::kYes}) {
        const std::size_t count = n > 3000 ? 3 : std::min<std::size_t>(n, 12);
        std::vector<float> q(n);
        // Few leave some parts with nothing, and draws use the support up.
        for (std::size_t i = few ? random() % n : 0; i < n; i += few ? 1 + n / 6 : 1)
          q[i] = std::ldexp(1.0f + static_cast<float>(random() % 4096) / 4096,
                            -static_cast<int>(random() % 60));
        const StepRng rng{random(), 0, 0};
        SCOPED_TRACE(testing::Message()
                     << "n " << n << (few ? ", few" : "") << " seed " << rng.seed);
        EXPECT_EQ(draw(replacement, q, 1, count, rng, 5), walked(replacement, q, count, rng, 5));
      }
}

TEST_P(SamplingOps, DrawCOfRowIUsesTheKeyOfItsIndex) {
  std::mt19937 random(5);
  const std::size_t n = 997, rows = 3, count = 4;
  std::vector<float> q;
  const std::vector<float> row = probabilities(random_floats(n, random, 5.0f), 1, {1.0f, 0, 1.0f});
  for (std::size_t i = 0; i < rows; ++i) q.insert(q.end(), row.begin(), row.end());
  const StepRng rng{77, 1, 5};
  // Plain inversion of the CDF by the uniform of that index.
  const double total = std::accumulate(row.begin(), row.end(), 0.0);
  const auto invert = [&](std::uint64_t index) {
    const double u = rng.uniform(StepRng::Purpose::kDraft, index);
    double below = 0;
    std::int32_t t = 0;
    for (; below + static_cast<double>(row[static_cast<std::size_t>(t)]) <= u * total; ++t)
      below += static_cast<double>(row[static_cast<std::size_t>(t)]);
    return t;
  };
  for (const Replacement replacement : {Replacement::kNo, Replacement::kYes}) {
    const std::vector<std::int32_t> together = draw(replacement, q, rows, count, rng, 1000);
    for (std::size_t i = 0; i < rows; ++i) {
      const std::vector<std::int32_t> alone =
          draw(replacement, row, 1, count, rng, 1000 + i * count);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + dim(i * count)));
      // Without replacement only the first draw is from q itself.
      const std::size_t plain = replacement == Replacement::kYes ? count : 1;
      for (std::size_t c = 0; c < plain; ++c)
        EXPECT_EQ(together[i * count + c], invert(1000 + i * count + c));
    }
  }
}

TEST_P(SamplingOps, TakesTokensByTheirPlacesAndAnotherWhereThereIsNone) {
  std::mt19937 random(5);
  for (const std::size_t count : {std::size_t{1}, std::size_t{130}, std::size_t{1000}}) {
    std::vector<std::int32_t> from(700), index(count), expected;
    for (std::int32_t& token : from) token = static_cast<std::int32_t>(random() % 128000) - 1000;
    for (std::int32_t& place : index) {
      place = static_cast<std::int32_t>(random() % from.size());
      expected.push_back(std::max(0, from[static_cast<std::size_t>(place)]));
    }
    OnDevice tokens = send(from), places = send(index);
    OnDevice to = send(std::vector<std::int32_t>(count, -7));
    const auto n = static_cast<std::int64_t>(count);
    ops().take_tokens(stream(), tokens.view(DType::kI32, {700}), places.view(DType::kI32, {n}),
                      to.view(DType::kI32, {n}));
    EXPECT_EQ(to.read<std::int32_t>(), expected);
    EXPECT_THROW(ops().take_tokens(stream(), tokens.view(DType::kI32, {700}),
                                   places.view(DType::kI32, {n - 1}), to.view(DType::kI32, {n})),
                 Error);
  }
}

CANOPY_ON_EACH_DEVICE(SamplingOps);

}  // namespace
}  // namespace canopy
