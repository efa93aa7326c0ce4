// Several experts at once give what each gives alone, part by part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/base/formats/fp8_format.h"
#include "src/base/formats/packed_format.h"
#include "tests/kernels/grouped_matrix.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

constexpr std::int64_t kDim = 256, kHidden = 256;

struct Formats {
  DType in, out;
};

class FewExperts : public OnEachDevice {
 protected:
  struct Matrix {
    OnDevice data, companion;
    WeightView view;
    std::vector<float> values;
  };
  Matrix make_grouped(const GroupedFormat& format, std::int64_t rows, std::int64_t columns) {
    const GroupedMatrix matrix = random_grouped(format, rows, columns, random_);
    const std::span bytes = matrix.companion.bytes();
    Matrix made{send(matrix.rows),
                send(std::vector<std::byte>(bytes.begin(), bytes.end())),
                {},
                matrix.weights};
    made.view = {{made.data.data(), matrix.rows.size()},
                 {format.companion, made.companion.data()},
                 format.dtype,
                 rows,
                 columns};
    return made;
  }
  Matrix make_matrix(DType dtype, std::int64_t rows, std::int64_t columns) {
    if (const GroupedFormat* const format = find_grouped_format(dtype))
      return make_grouped(*format, rows, columns);
    const auto m = static_cast<std::size_t>(rows), k = static_cast<std::size_t>(columns);
    const CompanionFormat* const fp8 = find_fp8_format(dtype);
    std::vector<std::byte> bytes;
    if (fp8 == nullptr) {
      bytes = random_weights(dtype, m, k, random_);
    } else {
      for (std::size_t i = 0; i < m * k; ++i)
        bytes.push_back(static_cast<std::byte>(random_() % format::kE4M3NaN));
    }
    std::vector<float> scales(fp8 == nullptr ? 0 : fp8->bytes(rows, columns) / sizeof(float));
    for (float& scale : scales) scale = 0.001f / static_cast<float>(1 + random_() % 7);
    const auto view = [&](const std::byte* data, const void* companion) {
      if (fp8 == nullptr) return WeightView(data, dtype, rows, columns);
      return WeightView({data, bytes.size()}, {fp8, static_cast<const std::byte*>(companion)},
                        dtype, rows, columns);
    };
    Matrix made{send(bytes), send(scales), {}, std::vector<float>(m * k)};
    made.view = view(made.data.data(), made.companion.data());
    const WeightView host = view(bytes.data(), scales.data());
    for (std::size_t i = 0; i < m; ++i)
      row_as_f32(dtype, host.row(dim(i)), std::span(made.values).subspan(i * k, k));
    return made;
  }
  struct Expert {
    Matrix gate, up, down;
    OnDevice gate_bias, up_bias, down_bias, rows;
    std::vector<ExpertRow> own;
  };
  Expert make(const Formats& formats, std::vector<ExpertRow> own) {
    return {make_matrix(formats.in, kHidden, kDim),
            make_matrix(formats.in, kHidden, kDim),
            make_matrix(formats.out, kDim, kHidden),
            send(random_floats(kHidden, random_)),
            send(random_floats(kHidden, random_)),
            send(random_floats(kDim, random_)),
            send(own),
            own};
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
  /// Expects of experts with these rows of `rows` that they give at once what each gives alone.
  void expect_what_each_gives_alone(const Formats& formats, const Gating& gating, std::int64_t rows,
                                    const std::vector<std::vector<ExpertRow>>& of_experts) {
    using enum DType;
    SCOPED_TRACE(testing::Message() << name(formats.in) << " and " << name(formats.out));
    const bool expanded = in_blocks(formats.in) || find_fp8_format(formats.in) != nullptr ||
                          find_grouped_format(formats.in) != nullptr;
    std::vector<Expert> experts;
    for (const std::vector<ExpertRow>& own : of_experts) experts.push_back(make(formats, own));
    const std::vector<float> values = random_floats(rows * kDim, random_),
                             shares = random_floats(rows, random_);
    OnDevice x = send(values), weight = send(shares), sum = send(values);
    std::vector<ExpertUse> uses;
    for (Expert& e : experts)
      uses.push_back({{e.gate.view, e.up.view, e.down.view},
                      {gating, e.gate_bias.view(kF32, {kHidden}), e.up_bias.view(kF32, {kHidden}),
                       e.down_bias.view(kF32, {kDim})},
                      e.rows.view(kI32, {dim(e.own.size()), 2})});
    ops().experts(stream(), x.view(kF32, {rows, kDim}), weight.view(kF32, {rows, 1}), uses,
                  sum.view(kF32, {rows, kDim}));
    const std::vector<float> got = sum.read<float>();

    std::vector<float> expected = values;
    std::vector<double> inner_error(expected.size());  // where one 16-bit inner value turns
    for (std::size_t i = 0; i < experts.size(); ++i) {
      const auto& [weights, form, own] = uses[i];
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
                                  static_cast<double>(experts[i].down.values[d * kHidden + h]));
        }
      }
    }
    // A GPU adds up products of plain weights by other kernels where experts come alone.
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (GetParam() == "cuda" || (GetParam() != "cpu" && !expanded)) {
        ASSERT_NEAR(got[i], expected[i], inner_error[i] + 0x1p-20) << i;
      } else {
        ASSERT_EQ(got[i], expected[i]) << i;
      }
    }
  }

 private:
  std::mt19937 random_{5};
};

TEST_P(FewExperts, GiveAtOnceWhatEachGivesAlone) {
  using enum DType;
  // More experts than one launch has, rows of one and of several, one without a weight.
  constexpr std::int32_t kRows = 10;
  std::vector<std::vector<ExpertRow>> of_experts(11);
  for (std::int32_t e = 0; e < 11; ++e)
    for (std::int32_t row = 0; row < kRows; ++row)
      if (e == 10 ? row < 8 : (row + e) % 4 == 0 || row == e)
        of_experts[static_cast<std::size_t>(e)].push_back({row, e == 10 ? -1 : row});
  for (const Formats& formats : {Formats{kBF16, kBF16},
                                 {kF16, kF16},
                                 {kQ4_0, kQ4_0},
                                 {kQ4_K, kQ6_K},
                                 {kMXFP4, kMXFP4},
                                 {kF32, kF32},
                                 {kBF16, kQ8_0}})
    for (const Gating& gating : {Gating{}, Gating{GatingKind::kClamped, 7.0f, 1.702f}})
      expect_what_each_gives_alone(formats, gating, kRows, of_experts);
}

TEST_P(FewExperts, OfEveryFormatGiveAtOnceWhatEachGivesAlone) {
  std::vector<DType> all{DType::kE4M3Blocks, DType::kE4M3Rows};
  for (const WeightFormat& format : kWeightFormats) all.push_back(format.dtype);
  for (const GroupedFormat& format : kGroupedFormats) all.push_back(format.dtype);
  for (const DType dtype : all)
    expect_what_each_gives_alone({dtype, dtype}, {}, 2, {{{0, 0}}, {{0, 1}, {1, -1}}});
}

CANOPY_ON_EACH_DEVICE(FewExperts);

}  // namespace
}  // namespace canopy
