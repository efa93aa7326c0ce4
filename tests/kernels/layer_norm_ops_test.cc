// Ops that decoders with layer norms need besides the others', against plain loops.
#include <cmath>

#include "tests/error_of.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

class LayerNormOps : public OnEachDevice {};

TEST_P(LayerNormOps, LayerNormEqualsPlainLoopsFarFromZeroToo) {
  std::mt19937 random(1);
  on_each_instruction_set([&] {
    for (const float far : {0.0f, 30.0f})
      for (const std::size_t width : {1, 5, 24, 64, 576, 1337}) {
        const std::size_t n = 7;
        const float eps = 1e-5f;
        std::vector<float> x = random_floats(n * width, random);
        for (float& value : x) value += far;
        const std::vector<float> g = random_floats(width, random), b = random_floats(width, random);
        OnDevice xs = send(x), gs = send(g), bs = send(b), y = send(std::vector<float>(x.size()));
        ops().layer_norm(
            stream(), xs.view(DType::kF32, {dim(n), dim(width)}),
            {gs.view(DType::kF32, {dim(width)}), bs.view(DType::kF32, {dim(width)}), eps},
            y.view(DType::kF32, {dim(n), dim(width)}));
        const std::vector<float> got = y.read<float>();
        for (std::size_t i = 0; i < n; ++i) {
          const double w = static_cast<double>(width);
          double sum = 0, absolute = 0, squares = 0;
          for (std::size_t k = 0; k < width; ++k) {
            sum += static_cast<double>(x[i * width + k]);
            absolute += std::abs(static_cast<double>(x[i * width + k]));
          }
          for (std::size_t k = 0; k < width; ++k)
            squares += std::pow(static_cast<double>(x[i * width + k]) - sum / w, 2);
          const double r = 1 / std::sqrt(squares / w + static_cast<double>(eps));
          // The mean is off by (width + 1) roundings of the values' size, and by half of that each
          // difference and, relative to their spread, the root: a shift that all share moves the
          // sum of squares by its square alone.
          const double shift = (w + 1) * kEps * absolute / w;
          for (std::size_t k = 0; k < width; ++k) {
            const double apart = static_cast<double>(x[i * width + k]) - sum / w;
            const double gain = static_cast<double>(g[k]), bias = static_cast<double>(b[k]);
            const double want = gain * apart * r + bias;
            const double roundings = (w + 7) / 2 + 8;
            ASSERT_NEAR(got[i * width + k], want,
                        std::abs(gain) * r * (shift + roundings * kEps * std::abs(apart)) +
                            std::abs(gain * apart) * r * shift * shift * r * r +
                            2 * kEps * std::abs(want) + 2 * kEps * std::abs(gain * apart * r))
                << "far " << far << " width " << width;
          }
        }
      }
  });
}

TEST_P(LayerNormOps, ActivationsEqualPlainLoopsAndKeepNan) {
  std::mt19937 random(2);
  on_each_instruction_set([&] {
    const std::size_t n = 3, width = 1003;
    std::vector<float> x = random_floats(n * width, random, 6.0f);
    x[0] = -1000.0f, x[1] = 1000.0f, x[2] = 0.0f, x[3] = NAN;
    for (const Activation activation : {Activation::kRelu, Activation::kGeluTanh, Activation::kSilu,
                                        Activation::kSigmoid, Activation::kReluSquared}) {
      OnDevice xs = send(x), y = send(x);
      ops().activate(stream(), activation, xs.view(DType::kF32, {dim(n), dim(width)}),
                     y.view(DType::kF32, {dim(n), dim(width)}));
      const std::vector<float> got = y.read<float>();
      ASSERT_TRUE(std::isnan(got[3]));
      for (std::size_t i = 4; i < n * width; ++i) {
        const double v = static_cast<double>(x[i]);
        const double gelu = 2 * std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
        const double u = activation == Activation::kGeluTanh ? gelu : v;
        const double top = activation == Activation::kSigmoid ? 1 : v;
        const bool squares = activation == Activation::kReluSquared;
        const double want = activation == Activation::kRelu ? std::max(v, 0.0)
                            : squares                       ? std::pow(std::max(v, 0.0), 2)
                                                            : top / (1 + std::exp(-u));
        // u has six roundings, of which exp makes as many times |u|; eight follow.
        const double roundings = activation == Activation::kRelu ? 0 : 12 + 6 * std::abs(u);
        ASSERT_NEAR(got[i], want, roundings * kEps * std::abs(want) + 0x1p-126) << v;
      }
      EXPECT_EQ(got[0], 0.0f);
      const bool sigmoid = activation == Activation::kSigmoid;
      EXPECT_EQ(got[1], sigmoid ? 1.0f : activation == Activation::kReluSquared ? 1e6f : 1000.0f);
      EXPECT_EQ(got[2], sigmoid ? 0.5f : 0.0f);
    }
  });
}

TEST_P(LayerNormOps, WeightsOfSeveralRowsTakeTurns) {
  std::mt19937 random(5);
  on_each_instruction_set([&] {
    const std::size_t heads = 3, n = 4 * heads, width = 37;
    const std::vector<float> x = random_floats(n * width, random),
                             g = random_floats(heads * width, random),
                             b = random_floats(heads * width, random);
    OnDevice xs = send(x), gs = send(g), bs = send(b), y = send(x), alone = send(x);
    const auto own = {dim(heads), dim(width)};
    ops().layer_norm(stream(), xs.view(DType::kF32, {dim(n), dim(width)}),
                     {gs.view(DType::kF32, own), bs.view(DType::kF32, own), 1e-5f},
                     y.view(DType::kF32, {dim(n), dim(width)}));
    const std::vector<float> got = y.read<float>();
    for (std::size_t head = 0; head < heads; ++head) {
      const auto part = [&](const std::vector<float>& of) {
        const auto from = of.begin() + dim(head * width);
        return std::vector<float>(from, from + dim(width));
      };
      OnDevice own_g = send(part(g)), own_b = send(part(b));
      ops().layer_norm(
          stream(), xs.view(DType::kF32, {dim(n), dim(width)}),
          {own_g.view(DType::kF32, {dim(width)}), own_b.view(DType::kF32, {dim(width)}), 1e-5f},
          alone.view(DType::kF32, {dim(n), dim(width)}));
      const std::vector<float> want = alone.read<float>();
      for (std::size_t row = head; row < n; row += heads)
        for (std::size_t k = 0; k < width; ++k)
          ASSERT_EQ(got[row * width + k], want[row * width + k]) << "row " << row;
    }
  });
}

TEST_P(LayerNormOps, XieluEqualsPlainLoopsAndKeepsNan) {
  std::mt19937 random(6);
  on_each_instruction_set([&] {
    const XieluFactors xielu{0.9f, 0.85f, 0.45f, -0.02f};
    const std::size_t n = 3, width = 1003;
    std::vector<float> x = random_floats(n * width, random, 6.0f);
    x[0] = -1000.0f, x[1] = -0.01f, x[2] = 0.0f, x[3] = NAN;
    OnDevice xs = send(x), y = send(x);
    ops().activate(stream(), Activation::kXielu, xs.view(DType::kF32, {dim(n), dim(width)}),
                   y.view(DType::kF32, {dim(n), dim(width)}), xielu);
    const std::vector<float> got = y.read<float>();
    ASSERT_TRUE(std::isnan(got[3]));
    const double beta = double{xielu.beta}, eps = double{xielu.eps};
    const double positive = double{xielu.positive}, negative = double{xielu.negative};
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i == 3) continue;
      const auto v = static_cast<double>(x[i]);
      const double low = std::expm1(std::min(v, eps));
      const double want = v > 0 ? positive * v * v + beta * v : negative * (low - v) + beta * v;
      // exp within 8 eps; each of the other steps rounds once.
      const double parts = v > 0 ? positive * v * v : negative * (9 * std::abs(low) + std::abs(v));
      ASSERT_NEAR(got[i], want, (6 * parts + 3 * std::abs(beta * v)) * kEps) << v;
    }
  });
  OnDevice data = send(std::vector<float>(8));
  const auto view = data.view(DType::kF32, {1, 8});
  EXPECT_NE(error_of([&] {
              ops().activate(stream(), Activation::kXielu, view, view, {0, NAN, 0.5f, -1e-6f});
            }).find("xIELU's numbers are"),
            std::string::npos);
}

TEST_P(LayerNormOps, QueriesKeysAndValuesAreTakenApartHeadByHead) {
  const std::size_t n = 4, heads = 3, head_dim = 7;
  std::vector<float> fused(n * heads * 3 * head_dim);
  for (std::size_t i = 0; i < fused.size(); ++i) fused[i] = static_cast<float>(i);
  OnDevice from = send(fused);
  const std::vector<float> zeros(n * heads * head_dim);
  OnDevice q = send(zeros), k = send(zeros), v = send(zeros);
  const auto part_of = [&](OnDevice& of) {
    return RowPart{dim(head_dim), of.view(DType::kF32, {dim(n), dim(heads * head_dim)})};
  };
  ops().take_apart(stream(), from.view(DType::kF32, {dim(n), dim(heads), dim(3 * head_dim)}),
                   {part_of(q), part_of(k), part_of(v)});
  std::size_t part = 0;
  for (OnDevice* of : {&q, &k, &v}) {
    const std::vector<float> got = of->read<float>();
    for (std::size_t row = 0; row < n * heads; ++row)
      for (std::size_t j = 0; j < head_dim; ++j)
        ASSERT_EQ(got[row * head_dim + j], fused[(row * 3 + part) * head_dim + j]);
    ++part;
  }
}

TEST_P(LayerNormOps, PartsOfGroupsGoToTheirColumnsOrNowhere) {
  constexpr std::size_t kRows = 5, kGroups = 3, kWidth = 4 + 4 + 6 + 1, kColumns = 2 + 3 * 14;
  std::vector<float> fused(kRows * kGroups * kWidth);
  for (std::size_t i = 0; i < fused.size(); ++i) fused[i] = static_cast<float>(i + 1);
  OnDevice from = send(fused), to = send(std::vector<float>(kRows * kColumns));
  OnDevice last = send(std::vector<float>(kRows * kGroups));
  const TensorView y = to.view(DType::kF32, {dim(kRows), dim(kColumns)});
  ops().take_apart(
      stream(), from.view(DType::kF32, {dim(kRows), dim(kGroups), dim(kWidth)}),
      {{{4, y, 26}, {4}, {6, y, 2}, {1, last.view(DType::kF32, {dim(kRows), dim(kGroups)})}}});
  std::vector<float> want(kRows * kColumns), want_last(kRows * kGroups);
  for (std::size_t row = 0; row < kRows; ++row)
    for (std::size_t group = 0; group < kGroups; ++group) {
      const float* const own = fused.data() + (row * kGroups + group) * kWidth;
      for (std::size_t i = 0; i < 4; ++i) want[row * kColumns + 26 + group * 4 + i] = own[i];
      for (std::size_t i = 0; i < 6; ++i) want[row * kColumns + 2 + group * 6 + i] = own[8 + i];
      want_last[row * kGroups + group] = own[14];
    }
  EXPECT_EQ(to.read<float>(), want);
  EXPECT_EQ(last.read<float>(), want_last);
}

TEST_P(LayerNormOps, EmbedMayAddToWhatIsThere) {
  std::mt19937 random(3);
  on_each_instruction_set([&] {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
      const std::size_t vocab = 5, width = 96;
      const std::vector<std::byte> table = random_weights(dtype, vocab, width, random);
      const std::vector<std::int32_t> id = {4, 0, 4};
      const std::vector<float> before = random_floats(id.size() * width, random);
      OnDevice rows = send(table, 1), ids = send(id), y = send(before);
      ops().embed(stream(), rows.weights(dtype, vocab, width),
                  ids.view(DType::kI32, {dim(id.size())}),
                  y.view(DType::kF32, {dim(id.size()), dim(width)}), Accumulate::kYes);
      const std::vector<float> got = y.read<float>();
      std::vector<float> row(width);
      for (std::size_t i = 0; i < id.size(); ++i) {
        dequantize_row(
            dtype, table.data() + static_cast<std::size_t>(id[i]) * row_bytes(dtype, dim(width)),
            row);
        for (std::size_t j = 0; j < width; ++j)
          ASSERT_EQ(got[i * width + j], before[i * width + j] + row[j]);
      }
    }
  });
}

TEST_P(LayerNormOps, ChecksNameTheOpAndTheMismatch) {
  OnDevice data = send(std::vector<float>(4096));
  const auto f32 = [&](std::initializer_list<std::int64_t> shape) {
    return data.view(DType::kF32, shape);
  };
  const std::pair<std::string, std::string> cases[] = {
      {error_of([&] {
         ops().layer_norm(stream(), f32({2, 8}), {f32({8}), f32({7}), 0}, f32({2, 8}));
       }),
       "layer_norm: b"},
      {error_of([&] {
         ops().layer_norm(stream(), f32({4, 8}), {f32({2, 8}), f32({8}), 0}, f32({4, 8}));
       }),
       "layer_norm: b"},
      {error_of([&] {
         ops().activate(stream(), Activation::kRelu, f32({2, 8}), f32({2, 7}));
       }),
       "activate: y"},
      {error_of([&] {
         ops().take_apart(stream(), f32({2, 3, 16}), {{{8, f32({2, 24})}, {8, f32({3, 24})}}});
       }),
       "take_apart: a part has shape"},
      {error_of([&] {
         ops().take_apart(stream(), f32({2, 3, 16}), {{{8, f32({2, 24})}, {8, f32({2, 24}), 1}}});
       }),
       "take_apart: a part goes to columns up to 25 of [2, 24]"},
      {error_of([&] {
         ops().take_apart(stream(), f32({2, 3, 16}), {{{8, f32({2, 24})}}});
       }),
       "take_apart: parts of 8 columns are not all of [2, 3, 16]"},
      {error_of([&] {
         ops().take_apart(stream(), f32({2, 3, 16}), {{{-8}, {24}}});
       }),
       "take_apart: a part of -8 columns"},
      {error_of([&] {
         OnDevice block = send(std::vector<std::int32_t>{0});
         TreeAttention call;
         call.kv = {f32({2, 64, 8}), f32({2, 64, 8}), block.view(DType::kI32, {1}), 4096};
         call.q = f32({1, 2, 8}), call.out = f32({1, 2, 8}), call.slopes = f32({1});
         ops().attend(stream(), call);
       }),
       "attend: slopes"}};
  for (const auto& [got, want] : cases) EXPECT_EQ(got.substr(0, want.size()), want);
}

CANOPY_ON_EACH_DEVICE(LayerNormOps);

}  // namespace
}  // namespace canopy
