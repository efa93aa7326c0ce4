// Ops of recurrent layers against plain loops in double, whose sums carry bounds of their rounding;
// and trees against chains, bit for bit.
#include "kernels/delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/error_of.h"
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/delta_cases.h"

namespace canopy {
namespace {

/// A value and the most that rounding may have moved it.
struct Bounded {
  double value = 0, error = 0;
};

const DeltaSizes kSizes[] = {
    {2, 4, 8, 12}, {2, 6, 5, 16, true}, {1, 1, 16, 7}, {3, 3, 32, 64}, {2, 4, 20, 130}};

class DeltaTest : public OnEachDevice {
 protected:
  /// Calls body for layers of a few sizes, once per instruction set.
  void on_each_size(const std::function<void(const DeltaSizes&)>& body) {
    for (const DeltaSizes& s : kSizes) {
      SCOPED_TRACE(testing::Message() << s.key_heads << " of " << s.key_dim << " and "
                                      << s.value_heads << " of " << s.value_dim);
      on_each_instruction_set([&] { body(s); });
    }
  }
};

/// Wrong equations, which the bounds must not cover.
enum class Mistake { kNone, kConvolvedBySlot, kDecayOfTheRow, kOtherKeyHeads, kNoDecay };

Bounded silu(Bounded x) {
  const double y = x.value / (1 + std::exp(-x.value));
  return {y, 1.1 * x.error + 8 * kEps * std::abs(y)};  // |silu'| < 1.1
}

/// Row that delta_enter makes of the inputs of a path's last rows.
std::vector<Bounded> entered_row(const DeltaLayer& layer, const std::vector<std::size_t>& path) {
  const DeltaSizes& s = layer.size;
  std::vector<Bounded> row(s.channels());
  for (std::size_t c = 0; c < row.size(); ++c) {
    double size = 0;
    for (std::size_t t = 0; t < std::min(path.size(), whole(kDeltaTaps)); ++t) {
      const double term = double{layer.taps[c * whole(kDeltaTaps) + whole(kDeltaTaps) - 1 - t]} *
                          double{layer.mixed[path[path.size() - 1 - t] * s.channels() + c]};
      row[c].value += term;
      size += std::abs(term);
    }
    row[c].error = 5 * kEps * size;
    row[c] = silu(row[c]);
  }
  for (std::size_t part = 0; part < 2 * s.key_heads; ++part) {
    double squares = 1e-6, error = 0;
    for (std::size_t i = 0; i < s.key_dim; ++i) {
      const Bounded& x = row[part * s.key_dim + i];
      squares += x.value * x.value;
      error += 2 * std::abs(x.value) * x.error;
    }
    const double length = std::sqrt(squares);
    const double off = error / (2 * squares) + (static_cast<double>(s.key_dim) + 6) * kEps;
    const double factor = part < s.key_heads ? 1 / std::sqrt(static_cast<double>(s.key_dim)) : 1;
    for (std::size_t i = 0; i < s.key_dim; ++i) {
      Bounded& x = row[part * s.key_dim + i];
      x.error = (x.error + std::abs(x.value) * off) / length * factor;
      x.value *= factor / length;
    }
  }
  return row;
}

TEST_P(DeltaTest, ConvolvesAlongThePathAndNormalisesAsPlainLoopsDo) {
  on_each_size([&](const DeltaSizes& s) {
    constexpr std::size_t kPrefix = 5, kNodes = 23;
    const DeltaLayer layer(s, kPrefix + kNodes, 3);
    KeptRows kept(device(), stream(), s, kPrefix + kNodes, 9);
    TextRun run(device(), stream(), s, layer, kept);
    std::vector<std::size_t> first(kPrefix), rows(kNodes);
    std::iota(first.begin(), first.end(), 0);
    std::iota(rows.begin(), rows.end(), kPrefix);
    run.nodes(0, 0, first, {}, {});
    std::mt19937 random(4);
    const Paths paths = random_paths(kNodes, random);
    run.nodes(kPrefix, 0, rows, paths, {});
    const Floats keys = kept.keys(), decays = kept.decays();
    int by_slot = 0;  // rows that a convolution by slots would get right
    for (std::size_t i = 0; i < kNodes; ++i) {
      std::vector<std::size_t> path = first, slots = first;
      for (const std::size_t node : paths[i]) path.push_back(kPrefix + node);
      for (std::size_t node = 0; node <= i; ++node) slots.push_back(kPrefix + node);
      const std::vector<Bounded> want = entered_row(layer, path), wrong = entered_row(layer, slots);
      bool same = true;
      for (std::size_t c = 0; c < s.channels(); ++c) {
        const double got = run.entered[i * s.channels() + c];
        EXPECT_NEAR(got, want[c].value, want[c].error) << "node " << i << " channel " << c;
        same = same && std::abs(got - wrong[c].value) <= wrong[c].error;
        if (const std::size_t k = s.key_heads * s.key_dim; c >= k && c < 2 * k) {
          EXPECT_EQ(keys[(kPrefix + i) * k + c - k], run.entered[i * s.channels() + c]);
        }
      }
      by_slot += same ? 1 : 0;
      for (std::size_t h = 0; h < s.value_heads; ++h) {
        const std::size_t own = (kPrefix + i) * s.value_heads + h;
        const double x = double{layer.a[own]} + double{layer.dt[h]};
        const double g = std::exp(double{layer.rate[h]}) * std::log1p(std::exp(x));
        const double beta = 1 / (1 + std::exp(-double{layer.b[own]}));
        // An exponential is off by two units in the last place on a GPU: by 4 kEps. Then a sum and
        // a quotient.
        EXPECT_NEAR(run.betas[i * s.value_heads + h], beta, 6 * kEps * beta);
        // Error of g: that of the rate, of the sum, which softplus damps, and of its function.
        const double of_g =
            12 * kEps * g + 2 * kEps * std::exp(double{layer.rate[h]}) * std::abs(x);
        EXPECT_NEAR(decays[own], std::exp(-g), std::exp(-g) * (of_g + 4 * kEps));
      }
    }
    EXPECT_LT(by_slot, static_cast<int>(kNodes) / 2);
  });
}

/// The delta rule along a path, of what was entered, with bounds. Shapes: state [value_heads,
/// key_dim, value_dim] of the anchor, or empty; the path's rows after it.
struct Rule {
  const DeltaSizes& s;
  const Floats &state, &keys, &decays;        // by slot
  std::vector<std::vector<Bounded>> updates;  // by slot, [value_heads * value_dim]

  /// Enters the update of slot `own`, whose path since the anchor `way` leads to it, and returns
  /// its output.
  std::vector<Bounded> node(const std::vector<std::size_t>& way, std::size_t own,
                            const float* mixed, const float* beta, Mistake mistake) {
    std::vector<Bounded> out(s.value_heads * s.value_dim);
    updates[own].assign(out.size(), {});
    for (std::size_t h = 0; h < s.value_heads; ++h) {
      DeltaSizes heads = s;
      heads.by_turns = s.by_turns != (mistake == Mistake::kOtherKeyHeads);
      const std::size_t kh = heads.key_head(h);
      const float* const q = mixed + kh * s.key_dim;
      const float* const k = &keys[(own * s.key_heads + kh) * s.key_dim];
      const float* const v = mixed + 2 * s.key_heads * s.key_dim + h * s.value_dim;
      const auto decay_of = [&](std::size_t slot) {
        return mistake == Mistake::kNoDecay ? 1.0 : double{decays[slot * s.value_heads + h]};
      };
      std::vector<double> w(way.size());
      double all = decay_of(own);
      for (std::size_t j = way.size(); j-- > 0;) {
        w[j] = mistake == Mistake::kDecayOfTheRow ? decay_of(way[j]) : all;
        all *= decay_of(way[j]);
      }
      // Roundings of any product of a sum: those of its factors and of adding it up.
      const double roundings = static_cast<double>(2 * s.key_dim + 3 * way.size() + 8) * kEps;
      for (std::size_t c = 0; c < s.value_dim; ++c) {
        double read = 0, asked = 0, read_size = 0, asked_size = 0;
        for (std::size_t i = 0; i < s.key_dim && !state.empty(); ++i) {
          const double x = state[(h * s.key_dim + i) * s.value_dim + c];
          read += x * double{k[i]}, read_size += std::abs(x * double{k[i]});
          asked += x * double{q[i]}, asked_size += std::abs(x * double{q[i]});
        }
        double u = double{v[c]} - all * read, size = std::abs(double{v[c]}) + all * read_size;
        double o = all * asked, o_size = all * asked_size, carried = 0, o_carried = 0;
        const auto add = [&](std::size_t slot, double weight, bool to_update) {
          const float* const earlier = &keys[(slot * s.key_heads + kh) * s.key_dim];
          double kk = 0, kq = 0, kk_size = 0, kq_size = 0;
          for (std::size_t i = 0; i < s.key_dim; ++i) {
            kk += double{earlier[i]} * double{k[i]};
            kq += double{earlier[i]} * double{q[i]};
            kk_size += std::abs(double{earlier[i]} * double{k[i]});
            kq_size += std::abs(double{earlier[i]} * double{q[i]});
          }
          const Bounded& other = updates[slot][h * s.value_dim + c];
          if (to_update) {
            u -= weight * kk * other.value;
            size += weight * kk_size * std::abs(other.value);
            carried += weight * std::abs(kk) * other.error;
          }
          o += weight * kq * other.value;
          o_size += weight * kq_size * std::abs(other.value);
          o_carried += weight * std::abs(kq) * other.error;
        };
        for (std::size_t j = 0; j < way.size(); ++j) add(way[j], w[j], true);
        updates[own][h * s.value_dim + c] = {double{beta[h]} * u,
                                             double{beta[h]} * (roundings * size + carried)};
        add(own, 1, false);
        out[h * s.value_dim + c] = {o, roundings * o_size + o_carried};
      }
    }
    return out;
  }
};

TEST_P(DeltaTest, FollowsTheRuleAlongPathsFromTwoAnchorsWithinRounding) {
  on_each_size([&](const DeltaSizes& s) {
    // The tree's nodes lie on both sides of the position from which a second anchor is read.
    constexpr std::size_t kNodes = 21, kSecond = kAnchorStep + kDeepestTree, kPrefix = kSecond - 2;
    const DeltaLayer layer(s, kPrefix + kNodes, 5);
    KeptRows kept(device(), stream(), s, kPrefix + kNodes, 2);
    TextRun run(device(), stream(), s, layer, kept);
    std::vector<std::size_t> chain(kPrefix), rows(kNodes);
    std::iota(chain.begin(), chain.end(), 0);
    std::iota(rows.begin(), rows.end(), kPrefix);
    run.nodes(0, 0, chain, {}, {});
    const Floats chain_entered = run.entered, chain_betas = run.betas, chain_out = run.out;
    OnDevice state = send(Floats(s.state()));
    const TensorView moved =
        state.view(DType::kF32, {dim(s.value_heads), dim(s.key_dim), dim(s.value_dim)});
    const KeyHeads heads = s.by_turns ? KeyHeads::kByTurns : KeyHeads::kInGroups;
    ops().delta_fold(stream(), {kept.view(), {}, moved, heads});
    const Floats after = state.read<float>();
    std::mt19937 random(4);
    const Paths paths = random_paths(kNodes, random);
    run.nodes(kPrefix, 0, rows, paths, {DeltaState{}, {kAnchorStep, moved}});
    const Floats keys = kept.keys(), decays = kept.decays(), updates = kept.updates();

    const std::size_t width = s.value_heads * s.value_dim;
    for (const Mistake mistake :
         {Mistake::kNone, Mistake::kDecayOfTheRow, Mistake::kOtherKeyHeads, Mistake::kNoDecay}) {
      if (mistake == Mistake::kOtherKeyHeads && (s.key_heads == 1 || s.key_heads == s.value_heads))
        continue;  // there are no others
      std::size_t outside = 0;
      const auto compare = [&](double got, const Bounded& want) {
        outside += std::abs(got - want.value) <= want.error ? 0 : 1;
      };
      const Floats none;
      Rule zero{s, none, keys, decays, std::vector<std::vector<Bounded>>(kPrefix + kNodes)};
      for (std::size_t i = 0; i < kPrefix; ++i) {
        const std::vector<std::size_t> way(chain.begin(),
                                           chain.begin() + static_cast<std::ptrdiff_t>(i));
        const auto out = zero.node(way, i, &chain_entered[i * s.channels()],
                                   &chain_betas[i * s.value_heads], mistake);
        for (std::size_t c = 0; c < width; ++c) {
          compare(chain_out[i * width + c], out[c]);
          compare(updates[i * width + c], zero.updates[i][c]);
        }
      }
      Rule later{s, after, keys, decays, zero.updates};
      for (std::size_t i = 0; i < kNodes; ++i) {
        const bool second = kPrefix + paths[i].size() - 1 >= kSecond;
        Rule& rule = second ? later : zero;
        std::vector<std::size_t> way(
            chain.begin() + (second ? static_cast<std::ptrdiff_t>(kAnchorStep) : 0), chain.end());
        for (const std::size_t node : paths[i])
          if (node != i) way.push_back(kPrefix + node);
        const auto out = rule.node(way, kPrefix + i, &run.entered[i * s.channels()],
                                   &run.betas[i * s.value_heads], mistake);
        (second ? zero : later).updates[kPrefix + i] = rule.updates[kPrefix + i];
        for (std::size_t c = 0; c < width; ++c) compare(run.out[i * width + c], out[c]);
      }
      if (mistake == Mistake::kNone)
        EXPECT_EQ(outside, 0u);
      else
        EXPECT_GT(outside, width) << "mistake " << static_cast<int>(mistake);
      if (mistake != Mistake::kNone) continue;
      // The state after the first anchor: a sum over its rows.
      for (std::size_t h = 0; h < s.value_heads; ++h)
        for (std::size_t i = 0; i < s.key_dim; ++i)
          for (std::size_t c = 0; c < s.value_dim; ++c) {
            double sum = 0, size = 0, carried = 0, w = 1;
            for (std::size_t j = kAnchorStep; j-- > 0;) {
              const double k = keys[(j * s.key_heads + s.key_head(h)) * s.key_dim + i];
              const Bounded& u = zero.updates[j][h * s.value_dim + c];
              sum += w * k * u.value;
              size += std::abs(w * k * u.value);
              carried += std::abs(w * k) * u.error;
              w *= double{decays[j * s.value_heads + h]};
            }
            EXPECT_NEAR(after[(h * s.key_dim + i) * s.value_dim + c], sum,
                        static_cast<double>(3 * kAnchorStep) * kEps * size + carried);
          }
    }
  });
}

TEST_P(DeltaTest, GivesATreesNodesTheBitsOfTheirPathsAsChains) {
  on_each_size([&](const DeltaSizes& s) {
    constexpr std::size_t kNodes = 64, kSecond = kAnchorStep + kDeepestTree, kPrefix = kSecond - 3;
    const DeltaLayer layer(s, kPrefix + kNodes, 6);
    std::vector<std::size_t> chain(kPrefix), rows(kNodes);
    std::iota(chain.begin(), chain.end(), 0);
    std::iota(rows.begin(), rows.end(), kPrefix);
    const KeyHeads heads = s.by_turns ? KeyHeads::kByTurns : KeyHeads::kInGroups;
    const auto start = [&](TextRun& run, KeptRows& kept, OnDevice& state) {
      run.nodes(0, 0, chain, {}, {});
      const TensorView moved =
          state.view(DType::kF32, {dim(s.value_heads), dim(s.key_dim), dim(s.value_dim)});
      ops().delta_fold(stream(), {kept.view(), {}, moved, heads});
      return std::array<DeltaState, 2>{DeltaState{}, {kAnchorStep, moved}};
    };
    KeptRows kept(device(), stream(), s, kPrefix + kNodes, 2);
    TextRun tree(device(), stream(), s, layer, kept);
    OnDevice state = send(Floats(s.state()));
    std::mt19937 random(8);
    const Paths paths = random_paths(kNodes, random);
    const auto states = start(tree, kept, state);
    tree.nodes(kPrefix, 0, rows, paths, states);
    const std::size_t width = s.value_heads * s.value_dim;
    for (const std::size_t node : {std::size_t{0}, kNodes / 2, kNodes - 2, kNodes - 1}) {
      KeptRows other(device(), stream(), s, kPrefix + kNodes, 12);  // other places
      TextRun alone(device(), stream(), s, layer, other);
      OnDevice own_state = send(Floats(s.state()));
      const auto own_states = start(alone, other, own_state);
      std::vector<std::size_t> path;
      for (const std::size_t step : paths[node]) path.push_back(kPrefix + step);
      for (std::size_t i = 0; i < path.size(); ++i)  // one at a time
        alone.nodes(kPrefix + i, 0, {path[i]}, {}, own_states);
      EXPECT_EQ(Floats(tree.out.begin() + static_cast<std::ptrdiff_t>(node * width),
                       tree.out.begin() + static_cast<std::ptrdiff_t>((node + 1) * width)),
                alone.out)
          << "node " << node;
    }
  });
}

TEST_P(DeltaTest, NormalisesHeadsAndGatesThem) {
  on_each_size([&](const DeltaSizes& s) {
    const auto n = s.value_dim;
    std::mt19937 random(1);
    const Floats x = random_floats(3 * n, random, 2), g = random_floats(n, random),
                 z = random_floats(3 * n, random, 3);
    constexpr float kEpsilon = 1e-5f;
    OnDevice of_x = send(x), of_g = send(g), of_z = send(z);
    ops().gated_norm(stream(),
                     {of_x.view(DType::kF32, {3, dim(n)}), of_g.view(DType::kF32, {dim(n)}),
                      of_z.view(DType::kF32, {3, dim(n)}), kEpsilon});
    const Floats got = of_x.read<float>();
    for (std::size_t row = 0; row < 3; ++row) {
      double squares = 0;
      for (std::size_t k = 0; k < n; ++k) squares += std::pow(double{x[row * n + k]}, 2);
      const double r = 1 / std::sqrt(squares / static_cast<double>(n) + double{kEpsilon});
      for (std::size_t k = 0; k < n; ++k) {
        const double gate = z[row * n + k];
        const double want =
            double{g[k]} * double{x[row * n + k]} * r * gate / (1 + std::exp(-gate));
        EXPECT_NEAR(got[row * n + k], want,
                    (static_cast<double>(n) / 2 + 14) * kEps * std::abs(want));
      }
    }
  });
}

TEST_P(DeltaTest, GatesHeadsByWhatFollowsTheirQueries) {
  on_each_size([&](const DeltaSizes& s) {
    const auto n = s.value_dim;
    std::mt19937 random(1);
    const Floats fused = random_floats(2 * 3 * 2 * n, random, 3),
                 x = random_floats(2 * 3 * n, random);
    OnDevice of_fused = send(fused), of_x = send(x);
    ops().gate_heads(stream(), of_fused.view(DType::kF32, {2, 3, 2, dim(n)}),
                     of_x.view(DType::kF32, {2, 3, dim(n)}));
    const Floats gated = of_x.read<float>();
    for (std::size_t head = 0; head < 6; ++head)
      for (std::size_t k = 0; k < n; ++k) {
        const double gate = fused[(2 * head + 1) * n + k];
        const double want = double{x[head * n + k]} / (1 + std::exp(-gate));
        EXPECT_NEAR(gated[head * n + k], want, 8 * kEps * std::abs(want));
      }
  });
}

TEST_P(DeltaTest, RefusesNodesWhoseStateIsNotGiven) {
  const DeltaSizes& s = kSizes[0];
  constexpr std::size_t kPrefix = kAnchorStep + kDeepestTree;
  const DeltaLayer layer(s, kPrefix + 1, 5);
  KeptRows kept(device(), stream(), s, kPrefix + 1, 2);
  TextRun run(device(), stream(), s, layer, kept);
  EXPECT_THROW(run.nodes(kPrefix, 0, {kPrefix}, {}, {}), Error);
}

TEST_P(DeltaTest, RefusesOnAGpuAloneWhatABlockHasNoRoomFor) {
  for (const DeltaSizes& s : {DeltaSizes{1, 1, 513, 4}, DeltaSizes{1, 65, 8, 4}}) {
    KeptRows kept(device(), stream(), s, 1, 2);
    OnDevice mixed = send(Floats(s.channels())), beta = send(Floats(s.value_heads)),
             out = send(Floats(s.value_heads * s.value_dim));
    const std::int64_t heads = dim(s.value_heads);
    const DeltaRule call{{kept.view(), {}, 0, 0},
                         mixed.view(DType::kF32, {1, dim(s.channels())}),
                         beta.view(DType::kF32, {1, heads}),
                         {},
                         KeyHeads::kInGroups,
                         out.view(DType::kF32, {1, heads, dim(s.value_dim)})};
    const std::string why = error_of([&] { ops().delta_rule(stream(), call); });
    if (device().shares_host_memory())
      EXPECT_EQ(why, "");
    else
      EXPECT_NE(why.find("are supported"), std::string::npos) << why;
    stream().synchronize();
  }
}

CANOPY_ON_EACH_DEVICE(DeltaTest);

}  // namespace
}  // namespace canopy
