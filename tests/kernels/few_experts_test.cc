// Several experts at once give what each gives alone, part by part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

constexpr std::int64_t kDim = 256, kHidden = 256;

struct Formats {
  DType in, out;
};

class FewExperts : public OnEachDevice {
 protected:
  struct Expert {
    OnDevice gate, up, down, gate_bias, up_bias, down_bias, rows;
    std::vector<ExpertRow> own;
    std::vector<float> down_values;
  };
  Expert make(const Formats& formats, std::vector<ExpertRow> own) {
    const auto matrix = [&](DType dtype, std::int64_t rows, std::int64_t columns) {
      return random_weights(dtype, static_cast<std::size_t>(rows),
                            static_cast<std::size_t>(columns), random_);
    };
    const std::vector<std::byte> down = matrix(formats.out, kDim, kHidden);
    std::vector<float> values(kDim * kHidden);
    const std::size_t row = row_bytes(formats.out, kHidden);
    for (std::size_t i = 0; i < kDim; ++i)
      dequantize_row(formats.out, down.data() + i * row, {&values[i * kHidden], kHidden});
    return {send(matrix(formats.in, kHidden, kDim)),
            send(matrix(formats.in, kHidden, kDim)),
            send(down),
            send(random_floats(kHidden, random_)),
            send(random_floats(kHidden, random_)),
            send(random_floats(kDim, random_)),
            send(own),
            own,
            std::move(values)};
  }
  /// y = x W^T + bias of one row.
  std::vector<float> product(OnDevice& x, std::int64_t row, std::int64_t columns,
                             const WeightView& w, const TensorView& bias) {
    OnDevice y = send(std::vector<float>(static_cast<std::size_t>(w.rows())));
    const Projection p{w, bias, y.view(DType::kF32, {1, w.rows()})};
    ops().linear(stream(), TensorView(x.data() + row * columns * 4, DType::kF32, {1, columns}),
                 {&p, 1});
    return y.read<float>();
  }
  std::mt19937 random_{5};
};

TEST_P(FewExperts, GiveAtOnceWhatEachGivesAlone) {
  using enum DType;
  for (const Formats& formats : {Formats{kBF16, kBF16},
                                 {kF16, kF16},
                                 {kQ4_0, kQ4_0},
                                 {kQ8_0, kQ8_0},
                                 {kQ4_K, kQ6_K},
                                 {kMXFP4, kMXFP4},
                                 {kIQ2_XXS, kIQ3_S},
                                 {kIQ1_M, kNVFP4},
                                 {kQ5_1, kQ2_K},
                                 {kF32, kF32},
                                 {kBF16, kQ8_0}})
    for (const Gating& gating : {Gating{}, Gating{GatingKind::kClamped, 7.0f, 1.702f}}) {
      SCOPED_TRACE(testing::Message() << name(formats.in) << " and " << name(formats.out));
      constexpr std::int64_t kRows = 10;
      // More experts than one launch has, rows of one and of several, one without a weight.
      std::vector<Expert> experts;
      for (std::int32_t e = 0; e < 11; ++e) {
        std::vector<ExpertRow> own;
        for (std::int32_t row = 0; row < kRows; ++row)
          if (e == 10 ? row < 8 : (row + e) % 4 == 0 || row == e)
            own.push_back({row, e == 10 ? -1 : row});
        experts.push_back(make(formats, own));
      }
      const std::vector<float> values = random_floats(kRows * kDim, random_),
                               shares = random_floats(kRows, random_);
      OnDevice x = send(values), weight = send(shares), sum = send(values);
      std::vector<ExpertUse> uses;
      for (Expert& e : experts)
        uses.push_back(
            {{e.gate.weights(formats.in, kHidden, kDim), e.up.weights(formats.in, kHidden, kDim),
              e.down.weights(formats.out, kDim, kHidden)},
             {gating, e.gate_bias.view(kF32, {kHidden}), e.up_bias.view(kF32, {kHidden}),
              e.down_bias.view(kF32, {kDim})},
             e.rows.view(kI32, {dim(e.own.size()), 2})});
      ops().experts(stream(), x.view(kF32, {kRows, kDim}), weight.view(kF32, {kRows, 1}), uses,
                    sum.view(kF32, {kRows, kDim}));
      const std::vector<float> got = sum.read<float>();

      std::vector<float> expected = values;
      std::vector<double> inner_error(expected.size());  // where one 16-bit inner value turns
      for (std::size_t i = 0; i < experts.size(); ++i) {
        const auto& [weights, form, rows] = uses[i];
        for (const ExpertRow& of : experts[i].own) {
          OnDevice gate = send(product(x, of.row, kDim, weights.gate,
                                       TensorView(experts[i].gate_bias.view(kF32, {kHidden})))),
                   up = send(product(x, of.row, kDim, weights.up,
                                     TensorView(experts[i].up_bias.view(kF32, {kHidden}))));
          ops().swiglu(stream(), gate.view(kF32, {1, kHidden}), up.view(kF32, {1, kHidden}),
                       gate.view(kF32, {1, kHidden}), gating);
          const std::vector<float> inner = gate.read<float>();
          const std::vector<float> y = product(gate, 0, kHidden, weights.down,
                                               TensorView(experts[i].down_bias.view(kF32, {kDim})));
          const float share = of.weight < 0 ? 1.0f : shares[static_cast<std::size_t>(of.weight)];
          for (std::size_t d = 0; d < kDim; ++d) {
            float& to = expected[static_cast<std::size_t>(of.row) * kDim + d];
            to = std::fma(share, y[d], to);
            for (std::size_t h = 0; h < kHidden; ++h)
              inner_error[static_cast<std::size_t>(of.row) * kDim + d] +=
                  0x1p-8 * std::abs(static_cast<double>(share) * static_cast<double>(inner[h]) *
                                    static_cast<double>(experts[i].down_values[d * kHidden + h]));
          }
        }
      }
      // A GPU adds up products of plain weights by other kernels where experts come alone.
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (GetParam() == "cuda" || (GetParam() != "cpu" && !in_blocks(formats.in))) {
          ASSERT_NEAR(got[i], expected[i], inner_error[i] + 0x1p-20) << i;
        } else {
          ASSERT_EQ(got[i], expected[i]) << i;
        }
      }
    }
}

CANOPY_ON_EACH_DEVICE(FewExperts);

}  // namespace
}  // namespace canopy
