// A mixture of experts against plain loops: a row's experts, their sum, and that neither depends on
// the other rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

constexpr std::int64_t kDim = 40, kHidden = 24;

struct Routes {
  std::vector<std::int32_t> expert;
  std::vector<float> weight;
};

class MixtureOps : public OnEachDevice {
 protected:
  Routes route(const std::vector<float>& logits, std::int64_t experts, std::int64_t active,
               const RouterRule& rule) {
    const std::int64_t n = dim(logits.size()) / experts;
    OnDevice on_device = send(logits), expert = send(std::vector<std::int32_t>(at(n * active), -1)),
             weight = send(std::vector<float>(at(n * active)));
    ops().route(stream(), on_device.view(DType::kF32, {n, experts}), rule,
                {expert.view(DType::kI32, {n, active}), weight.view(DType::kF32, {n, active})});
    return {expert.read<std::int32_t>(), weight.read<float>()};
  }

  /// The weights of experts in F32: gate, up, down of each.
  struct Experts {
    std::vector<std::array<std::vector<float>, 3>> values;
  };
  Experts random_experts(int count) {
    Experts experts;
    for (int i = 0; i < count; ++i)
      experts.values.push_back({random_floats(at(kHidden * kDim), random_, 0.4f),
                                random_floats(at(kHidden * kDim), random_, 0.4f),
                                random_floats(at(kDim * kHidden), random_, 0.4f)});
    return experts;
  }
  /// Biases of experts, in the same order; none where they have none.
  using Biases = Experts;
  Biases random_biases(int count) {
    Biases biases;
    for (int i = 0; i < count; ++i)
      biases.values.push_back({random_floats(at(kHidden), random_),
                               random_floats(at(kHidden), random_),
                               random_floats(at(kDim), random_)});
    return biases;
  }
  void expect_sums_of_five(bool clamped);

  /// Returns the sums of all experts for the rows, [n, kDim], on top of a residual.
  std::vector<float> mix(const std::vector<float>& x, const Routes& routes, std::int64_t active,
                         const Experts& experts, const std::vector<float>& residual = {}) {
    const std::int64_t n = dim(x.size()) / kDim;
    OnDevice rows = send(x), weight = send(routes.weight),
             sum = send(residual.empty() ? std::vector<float>(x.size()) : residual);
    std::vector<OnDevice> matrices;
    for (const auto& one : experts.values)
      for (const std::vector<float>& matrix : one) matrices.push_back(send(matrix));
    for (std::size_t i = 0; i < experts.values.size(); ++i) {
      std::vector<ExpertRow> own = rows_of(routes, active, i);
      for (ExpertRow& row : own) row.weight = weightless_ ? -1 : row.weight;
      if (own.empty()) continue;
      OnDevice of_expert = send(own);
      std::vector<OnDevice> biases;
      for (std::size_t bias = 0; bias < 3 && !biases_.values.empty(); ++bias)
        biases.push_back(send(biases_.values[i][bias]));
      ExpertForm form;
      if (!biases.empty())
        form = {{GatingKind::kClamped, 7.0f, 1.702f},
                biases[0].view(DType::kF32, {kHidden}),
                biases[1].view(DType::kF32, {kHidden}),
                biases[2].view(DType::kF32, {kDim})};
      const ExpertUse use{{matrices[3 * i].weights(DType::kF32, kHidden, kDim),
                           matrices[3 * i + 1].weights(DType::kF32, kHidden, kDim),
                           matrices[3 * i + 2].weights(DType::kF32, kDim, kHidden)},
                          form,
                          of_expert.view(DType::kI32, {dim(own.size()), 2})};
      ops().experts(stream(), rows.view(DType::kF32, {n, kDim}),
                    weight.view(DType::kF32, {n, active}), {&use, 1},
                    sum.view(DType::kF32, {n, kDim}));
      stream().synchronize();
    }
    return sum.read<float>();
  }
  static std::vector<ExpertRow> rows_of(const Routes& routes, std::int64_t active,
                                        std::size_t expert) {
    std::vector<ExpertRow> rows;
    for (std::size_t i = 0; i < routes.expert.size(); ++i)
      if (routes.expert[i] == static_cast<std::int32_t>(expert))
        rows.push_back({static_cast<std::int32_t>(dim(i) / active), static_cast<std::int32_t>(i)});
    return rows;
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  bool weightless_ = false;
  Biases biases_;
  std::mt19937 random_{11};
};

TEST_P(MixtureOps, RowsHaveTheExpertsOfHighestScoreByRisingIndex) {
  constexpr std::int64_t kExperts = 37, kRows = 90;
  const std::vector<float> logits = random_floats(at(kExperts * kRows), random_, 4.0f),
                           biases = random_floats(at(kExperts), random_, 0.5f);
  OnDevice bias = send(biases);
  for (const std::int64_t active : {std::int64_t{1}, std::int64_t{4}, kExperts})
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid})
      for (const Normalised normalised : {Normalised::kNo, Normalised::kYes})
        for (const bool biased : {false, true}) {
          RouterRule rule{score, normalised, biased ? 2.5f : 1.0f};
          if (biased) rule.bias = bias.view(DType::kF32, {kExperts});
          const Routes got = route(logits, kExperts, active, rule);
          for (std::int64_t row = 0; row < kRows; ++row) {
            std::vector<double> scores(at(kExperts)), ranks(at(kExperts));
            double all = 0;
            for (std::size_t e = 0; e < scores.size(); ++e) {
              const double logit = double{logits[at(row * kExperts) + e]};
              scores[e] =
                  score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit);
              all += scores[e];
            }
            for (std::size_t e = 0; e < scores.size(); ++e) {
              if (score == RouterScore::kSoftmax) scores[e] /= all;
              ranks[e] = scores[e] + (biased ? double{biases[e]} : 0);
            }
            std::vector<std::int32_t> best(at(kExperts));
            std::iota(best.begin(), best.end(), 0);
            const auto rank = [&](std::int32_t e) { return ranks[static_cast<std::size_t>(e)]; };
            std::stable_sort(best.begin(), best.end(),
                             [&](std::int32_t a, std::int32_t b) { return rank(a) > rank(b); });
            // The choice between two whose ranks are a rounding apart is left open.
            const bool close = active < kExperts &&
                               rank(best[at(active) - 1]) - rank(best[at(active)]) < 64 * kEps;
            if (close) continue;
            best.resize(at(active));
            std::sort(best.begin(), best.end());
            double chosen = 0;
            for (const std::int32_t e : best) chosen += scores[static_cast<std::size_t>(e)];
            for (std::size_t i = 0; i < best.size(); ++i) {
              EXPECT_EQ(got.expert[at(row * active) + i], best[i]);
              const double weight = double{rule.scale} * scores[static_cast<std::size_t>(best[i])] /
                                    (normalised == Normalised::kYes ? chosen : 1);
              EXPECT_NEAR(got.weight[at(row * active) + i], weight, 64 * kEps * weight);
            }
          }
        }
}

TEST_P(MixtureOps, TheBiasChoosesAndDoesNoMore) {
  OnDevice bias = send(std::vector<float>{0, 0, 1, 0});
  const Routes got = route({0, 0, -30, 0}, 4, 2,
                           {.score = RouterScore::kSigmoid, .bias = bias.view(DType::kF32, {4})});
  EXPECT_EQ(got.expert, (std::vector<std::int32_t>{0, 2}));
  EXPECT_NEAR(got.weight[0], 1.0f, 4 * kEps);
  EXPECT_NEAR(got.weight[1], 2 * std::exp(-30.0f), 1e-18f);
}

TEST_P(MixtureOps, SigmoidsThatAreAllZeroAreWeightsOfZero) {
  const Routes got =
      route({-200, -200, -200}, 3, 2, {.score = RouterScore::kSigmoid, .scale = 2.5f});
  EXPECT_EQ(got.expert, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(got.weight, (std::vector<float>{0, 0}));
}

TEST_P(MixtureOps, OfEqualScoresTheLowerIndexCounts) {
  const Routes got = route({1, 3, 1, 3, 1, 3}, 6, 2, RouterRule{});
  EXPECT_EQ(got.expert, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(got.weight, (std::vector<float>{0.5f, 0.5f}));
}

TEST_P(MixtureOps, AScoreThatIsNotANumberShowsInItsRow) {
  for (const Normalised normalised : {Normalised::kNo, Normalised::kYes}) {
    const Routes sigmoid = route({1, NAN, 2, 3}, 4, 2, {RouterScore::kSigmoid, normalised});
    EXPECT_EQ(sigmoid.expert, (std::vector<std::int32_t>{1, 3}));
    EXPECT_TRUE(std::isnan(sigmoid.weight[0]));
  }
  const Routes got = route({1, NAN, 2, 1, 5, 2}, 3, 2, RouterRule{});
  EXPECT_TRUE(std::isnan(got.weight[0]) && std::isnan(got.weight[1]));
  EXPECT_EQ(got.expert[2], 1);
  EXPECT_EQ(got.expert[3], 2);
  EXPECT_FALSE(std::isnan(got.weight[2]));
}

TEST_P(MixtureOps, ExpertsAddUpByWeightsPlainOrWithBiasesAndClamped) {
  for (const bool clamped : {false, true}) {
    biases_ = clamped ? random_biases(5) : Biases();
    expect_sums_of_five(clamped);
  }
}

void MixtureOps::expect_sums_of_five(bool clamped) {
  constexpr std::int64_t kExperts = 5, kActive = 2, kRows = 70;
  const Experts experts = random_experts(kExperts);
  const std::vector<float> x = random_floats(at(kRows * kDim), random_, clamped ? 24.0f : 1.0f);
  Routes routes;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto first = static_cast<std::int32_t>(row % (kExperts - 1));
    routes.expert.insert(routes.expert.end(), {first, static_cast<std::int32_t>(kExperts - 1)});
    routes.weight.insert(routes.weight.end(), {0.25f, 0.75f - 0.01f * static_cast<float>(row)});
  }
  const std::vector<float> got = mix(x, routes, kActive, experts);
  int beyond = 0;  // the limits
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::vector<double> expected(at(kDim)), size(at(kDim));
    for (std::int64_t a = 0; a < kActive; ++a) {
      const std::size_t index = at(routes.expert[at(row * kActive + a)]);
      const auto& [gate, up, down] = experts.values[index];
      const double weight = double{routes.weight[at(row * kActive + a)]};
      for (std::int64_t h = 0; h < kHidden; ++h) {
        double g = 0, u = 0;
        for (std::int64_t k = 0; k < kDim; ++k) {
          g += double{gate[at(h * kDim + k)]} * double{x[at(row * kDim + k)]};
          u += double{up[at(h * kDim + k)]} * double{x[at(row * kDim + k)]};
        }
        double inner = g / (1 + std::exp(-g)) * u, large = std::abs(inner);
        if (clamped) {
          const auto& [of_gate, of_up, of_down] = biases_.values[index];
          g += double{of_gate[at(h)]}, u += double{of_up[at(h)]};
          beyond += g > 7 || std::abs(u) > 7 ? 1 : 0;
          g = std::min(g, 7.0), u = std::clamp(u, -7.0, 7.0);
          inner = (u + 1) * g / (1 + std::exp(-double{1.702f} * g));
          large = (std::abs(u) + 1) * (std::abs(g) + 1);
        }
        for (std::int64_t k = 0; k < kDim; ++k) {
          const double down_weight = weight * double{down[at(k * kHidden + h)]};
          expected[at(k)] += down_weight * inner;
          size[at(k)] += std::abs(down_weight) * large;
        }
      }
      for (std::int64_t k = 0; clamped && k < kDim; ++k)
        expected[at(k)] += weight * double{biases_.values[index][2][at(k)]};
    }
    for (std::int64_t k = 0; k < kDim; ++k)
      EXPECT_NEAR(got[at(row * kDim + k)], expected[at(k)], 256 * kEps * (1 + size[at(k)]));
  }
  EXPECT_EQ(beyond > 1000, clamped);
}

TEST_P(MixtureOps, AWeightWithoutANumberIsOne) {
  constexpr std::int64_t kRows = 5;
  const Experts experts = random_experts(1);
  const std::vector<float> x = random_floats(at(kRows * kDim), random_);
  Routes routes{std::vector<std::int32_t>(at(kRows), 0), std::vector<float>(at(kRows), 1.0f)};
  const std::vector<float> weighted = mix(x, routes, 1, experts);
  weightless_ = true;
  routes.weight.assign(at(kRows), 7.0f);
  EXPECT_EQ(mix(x, routes, 1, experts), weighted);
}

TEST_P(MixtureOps, ARowsSumDoesNotDependOnTheRowsBesideIt) {
  if (GetParam() != "cpu") GTEST_SKIP() << "a property of the CPU backend";
  constexpr std::int64_t kExperts = 6, kActive = 3, kRows = 33;
  const Experts experts = random_experts(kExperts);
  const std::vector<float> x = random_floats(at(kRows * kDim), random_);
  const Routes routes = route(random_floats(at(kRows * kExperts), random_), kExperts, kActive,
                              RouterRule{.normalised = Normalised::kNo});
  on_each_instruction_set([&] {
    const std::vector<float> together = mix(x, routes, kActive, experts);
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{17}, kRows - 1}) {
      const auto part = [&](const auto& all, std::int64_t columns) {
        return std::decay_t<decltype(all)>(all.begin() + row * columns,
                                           all.begin() + (row + 1) * columns);
      };
      EXPECT_EQ(mix(part(x, kDim), {part(routes.expert, kActive), part(routes.weight, kActive)},
                    kActive, experts),
                part(together, kDim));
    }
  });
}

TEST_P(MixtureOps, OneExpertOfWeightOneIsTheDenseMlpBitForBit) {
  if (GetParam() != "cpu") GTEST_SKIP() << "a property of the CPU backend";
  constexpr std::int64_t kRows = 9;
  const Experts experts = random_experts(1);
  const std::vector<float> x = random_floats(at(kRows * kDim), random_),
                           residual = random_floats(at(kRows * kDim), random_);
  on_each_instruction_set([&] {
    const Routes routes = route(random_floats(at(kRows), random_), 1, 1, RouterRule{});
    OnDevice dense = send(residual), rows = send(x),
             gate = send(std::vector<float>(at(kRows * kHidden))),
             up = send(std::vector<float>(at(kRows * kHidden)));
    std::array<OnDevice, 3> w{send(experts.values[0][0]), send(experts.values[0][1]),
                              send(experts.values[0][2])};
    const auto wide = [&](OnDevice& of) { return of.view(DType::kF32, {kRows, kDim}); };
    const auto inner = [&](OnDevice& of) { return of.view(DType::kF32, {kRows, kHidden}); };
    const std::array gate_up{Projection{w[0].weights(DType::kF32, kHidden, kDim), {}, inner(gate)},
                             Projection{w[1].weights(DType::kF32, kHidden, kDim), {}, inner(up)}};
    ops().linear(stream(), wide(rows), gate_up);
    ops().swiglu(stream(), inner(gate), inner(up), inner(gate));
    const std::array down{
        Projection{w[2].weights(DType::kF32, kDim, kHidden), {}, wide(dense), 0, Accumulate::kYes}};
    ops().linear(stream(), inner(gate), down);
    EXPECT_EQ(mix(x, routes, 1, experts, residual), dense.read<float>());
  });
}

TEST_P(MixtureOps, ShapesThatDoNotFitAreRefused) {
  OnDevice floats = send(std::vector<float>(600)), ids = send(std::vector<std::int32_t>(60));
  OnDevice sums = send(std::vector<float>(16));
  const TensorView x = floats.view(DType::kF32, {2, 8}), sum = sums.view(DType::kF32, {2, 8});
  const RoutedRows rows{ids.view(DType::kI32, {2, 2}), floats.view(DType::kF32, {2, 2})};
  const WeightView wide = floats.weights(DType::kF32, 4, 8),
                   tall = floats.weights(DType::kF32, 8, 4);
  EXPECT_THROW(ops().route(stream(), floats.view(DType::kF32, {2, 1}),
                           RouterRule{.normalised = Normalised::kNo}, rows),
               Error)
      << "more of a row than there are";
  EXPECT_THROW(ops().route(stream(), floats.view(DType::kF32, {2, 4}),
                           {.bias = floats.view(DType::kF32, {3})}, rows),
               Error);
  EXPECT_THROW(ops().route(stream(), floats.view(DType::kF32, {2, 4}), {.scale = INFINITY}, rows),
               Error);
  const TensorView own = ids.view(DType::kI32, {1, 2});
  ExpertForm form;
  const auto expert = [&](const TensorView& of, const ExpertWeights& weights,
                          const TensorView& to) {
    const ExpertUse use{weights, form, of};
    ops().experts(stream(), x, rows.weight, {&use, 1}, to);
  };
  EXPECT_THROW(expert(own, {wide, tall, tall}, sum), Error);
  EXPECT_THROW(expert(own, {wide, wide, wide}, sum), Error);
  EXPECT_THROW(expert(own, {wide, wide, tall}, floats.view(DType::kF32, {1, 8})), Error);
  EXPECT_THROW(expert(ids.view(DType::kI32, {2, 1}), {wide, wide, tall}, sum), Error);
  expert(own, {wide, wide, tall}, sum);
  stream().synchronize();
  const ConstTensorView fits_hidden = floats.view(DType::kF32, {4}),
                        fits_dim = floats.view(DType::kF32, {8});
  for (const ExpertForm& wrong :
       {ExpertForm{.gate_bias = fits_dim}, ExpertForm{.up_bias = fits_dim},
        ExpertForm{.down_bias = fits_hidden},
        ExpertForm{.gating = {GatingKind::kClamped, NAN, 1.7f}}}) {
    form = wrong;
    EXPECT_THROW(expert(own, {wide, wide, tall}, sum), Error);
  }
}

CANOPY_ON_EACH_DEVICE(MixtureOps);

}  // namespace
}  // namespace canopy
