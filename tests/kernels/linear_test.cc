#include <cmath>
#include <limits>

#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

/// At least k columns, as many as whole blocks have.
std::size_t whole_blocks(const WeightFormat& format, std::size_t k) {
  const auto block = static_cast<std::size_t>(format.block_elements);
  return (k + block - 1) / block * block;
}

class Linear : public OnEachDevice {
 protected:
  /// Returns the error that a GPU adds to a product's: it rounds x to the 16-bit format of its
  /// matrix units, F16 for packed weights, which are then rounded too. Relative; and absolute per
  /// |w|, below F16's normal range.
  std::pair<double, double> input_rounding(DType dtype) const {
    if (GetParam() == "cpu" || dtype == DType::kF32) return {0, 0};
    if (dtype == DType::kBF16) return {0x1p-8, 0};
    return {in_blocks(dtype) ? 0x1.01p-10 : 0x1p-11, 0x1p-25};
  }

  /// y = x W^T of one projection without bias.
  std::vector<float> product(const std::vector<float>& x, std::size_t n, std::size_t k, OnDevice& w,
                             DType dtype, std::size_t m) {
    OnDevice xs = send(x), y = send(std::vector<float>(n * m, -7.0f));
    const auto rows = static_cast<std::int64_t>(n), columns = static_cast<std::int64_t>(m);
    const Projection p{w.weights(dtype, m, k), {}, y.view(DType::kF32, {rows, columns})};
    ops().linear(stream(), xs.view(DType::kF32, {rows, static_cast<std::int64_t>(k)}), {&p, 1});
    return y.read<float>();
  }
};

TEST_P(Linear, EqualsPlainLoopsForEveryWeightTypeAndOddSizes) {
  std::mt19937 random(7);
  on_each_instruction_set([&] {
    for (const WeightFormat& format : kWeightFormats)
      for (const std::size_t k : {1, 7, 32, 96, 250, 256, 576, 1056, 1280, 2080})
        for (const std::size_t m : {1, 6, 131}) {
          const DType dtype = format.dtype;
          if (k % static_cast<std::size_t>(format.block_elements) != 0) continue;
          const std::size_t n = m == 6 ? 3 : 13;  // few rows, and more
          SCOPED_TRACE(testing::Message() << name(dtype) << " n " << n << " k " << k << " m " << m);
          const std::vector<std::byte> weights = random_weights(dtype, m, k, random);
          const std::vector<float> x = random_floats(n * k, random);
          OnDevice w = send(weights, 1 + k % 3);
          const std::vector<float> y = product(x, n, k, w, dtype, m);
          std::vector<float> row(k);
          for (std::size_t j = 0; j < m; ++j) {
            dequantize_row(
                dtype, weights.data() + j * row_bytes(dtype, static_cast<std::int64_t>(k)), row);
            for (std::size_t i = 0; i < n; ++i) {
              double sum = 0, absolute = 0, weights_sum = 0;
              for (std::size_t q = 0; q < k; ++q) {
                const double term = static_cast<double>(x[i * k + q]) * static_cast<double>(row[q]);
                sum += term;
                absolute += std::abs(term);
                weights_sum += std::abs(static_cast<double>(row[q]));
              }
              const auto [rounding, below] = input_rounding(dtype);
              // math.md (C2)
              const double tolerance =
                  (static_cast<double>(k + 7) * kEps + rounding) * absolute + below * weights_sum;
              ASSERT_NEAR(y[i * m + j], sum, tolerance) << "row " << i << " column " << j;
            }
          }
        }
  });
}

TEST_P(Linear, ARowsBitsDoNotDependOnTheOtherRowsOrOnSlicing) {
  if (GetParam() != "cpu") GTEST_SKIP() << "a property of the CPU backend";
  std::mt19937 random(11);
  on_each_instruction_set([&] {
    for (const WeightFormat& format : kWeightFormats) {
      const DType dtype = format.dtype;
      const std::size_t k = whole_blocks(format, 1440), m = 67, n = 230;  // so that L2 is too small
      SCOPED_TRACE(name(dtype));
      const std::vector<std::byte> weights = random_weights(dtype, m, k, random);
      const std::vector<float> x = random_floats(n * k, random);
      OnDevice w = send(weights, 1);
      const std::vector<float> whole = product(x, n, k, w, dtype, m);
      for (const std::size_t rows : {1, 2, 3, 5, 8, 9, 16, 33, 97, 193}) {
        const std::vector<float> part(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(rows * k));
        const std::vector<float> y = product(part, rows, k, w, dtype, m);
        ASSERT_EQ(std::memcmp(y.data(), whole.data(), y.size() * sizeof(float)), 0) << rows;
      }
      // Two slices of w in one call fill one y.
      const std::size_t cut = 23, rows = 5;
      OnDevice xs = send(std::vector<float>(x.begin(), x.begin() + rows * k));
      OnDevice y = send(std::vector<float>(rows * m));
      const TensorView ys = y.view(DType::kF32, {rows, m});
      const WeightView all = w.weights(dtype, m, k);
      const Projection slices[] = {{all.slice(0, cut), {}, ys, 0},
                                   {all.slice(cut, m - cut), {}, ys, cut}};
      ops().linear(stream(), xs.view(DType::kF32, {rows, static_cast<std::int64_t>(k)}), slices);
      const std::vector<float> sliced = y.read<float>();
      ASSERT_EQ(std::memcmp(sliced.data(), whole.data(), sliced.size() * sizeof(float)), 0);
    }
  });
}

TEST_P(Linear, ZerosAppendedToTheInputChangeNoBits) {
  if (GetParam() != "cpu") GTEST_SKIP() << "a property of the CPU backend";
  std::mt19937 random(13);
  on_each_instruction_set([&] {
    for (const WeightFormat& format : kWeightFormats)
      for (const std::size_t least : {96, 576, 1120}) {
        const DType dtype = format.dtype;
        const std::size_t k = whole_blocks(format, least), wide = 4 * k, m = 19, n = 9;
        SCOPED_TRACE(testing::Message() << name(dtype) << " k " << k);
        const std::vector<std::byte> weights = random_weights(dtype, m, wide, random);
        const std::size_t wide_row = row_bytes(dtype, static_cast<std::int64_t>(wide));
        const std::size_t row = row_bytes(dtype, static_cast<std::int64_t>(k));
        std::vector<std::byte> narrow_weights;
        for (std::size_t j = 0; j < m; ++j)
          narrow_weights.insert(narrow_weights.end(),
                                weights.begin() + static_cast<std::ptrdiff_t>(j * wide_row),
                                weights.begin() + static_cast<std::ptrdiff_t>(j * wide_row + row));
        const std::vector<float> x = random_floats(n * k, random);
        std::vector<float> wide_x(n * wide, 0.0f);
        for (std::size_t i = 0; i < n; ++i) std::copy_n(&x[i * k], k, &wide_x[i * wide]);
        OnDevice narrow_w = send(narrow_weights), wide_w = send(weights);
        EXPECT_EQ(product(x, n, k, narrow_w, dtype, m), product(wide_x, n, wide, wide_w, dtype, m));
      }
  });
}

TEST_P(Linear, AddsBiasAndAccumulatesAfterTheWholeSum) {
  std::mt19937 random(17);
  on_each_instruction_set([&] {
    const std::size_t n = 5, k = 700, m = 10, width = 14, first = 3;
    const std::vector<std::byte> weights = random_weights(DType::kBF16, m, k, random);
    const std::vector<float> x = random_floats(n * k, random), bias = random_floats(m, random);
    const std::vector<float> before = random_floats(n * width, random);
    OnDevice w = send(weights, 1), b = send(bias, 1), xs = send(x), y = send(before);
    const std::vector<float> sums = product(x, n, k, w, DType::kBF16, m);
    const Projection p{w.weights(DType::kBF16, m, k), b.view(DType::kF32, {m}),
                       y.view(DType::kF32, {n, width}), first, Accumulate::kYes};
    ops().linear(stream(), xs.view(DType::kF32, {n, k}), {&p, 1});
    const std::vector<float> after = y.read<float>();
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < width; ++j) {
        const float old = before[i * width + j];
        const bool inside = j >= first && j < first + m;
        const float expected = inside ? old + (sums[i * m + j - first] + bias[j - first]) : old;
        if (GetParam() == "cpu" || !inside)
          EXPECT_EQ(after[i * width + j], expected);
        else  // the sum goes onto y first; and may itself be made in another order
          EXPECT_NEAR(after[i * width + j], expected, 700 * 0x1p-24 * 16);
      }
  });
}

TEST_P(Linear, MultipliesTheWholeSumByTheFactorOfItsMatrix) {
  std::mt19937 random(29);
  constexpr std::size_t k = 256, m = 35;
  constexpr float kFactor = 0.25f;  // which no order of multiplying and adding rounds
  for (const DType dtype : {DType::kNVFP4, DType::kBF16, DType::kF32})
    for (const std::size_t n : {3, 40}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << " n " << n);
      const std::vector<float> x = random_floats(n * k, random), bias = random_floats(m, random),
                               before = random_floats(n * m, random);
      OnDevice w = send(random_weights(dtype, m, k, random)), xs = send(x), b = send(bias);
      const std::vector<float> plain = product(x, n, k, w, dtype, m);
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        OnDevice y = send(before);
        const Projection p{w.weights(dtype, m, k).times(kFactor), b.view(DType::kF32, {m}),
                           y.view(DType::kF32, {static_cast<std::int64_t>(n), m}), 0, accumulate};
        ops().linear(stream(), xs.view(DType::kF32, {static_cast<std::int64_t>(n), k}), {&p, 1});
        const std::vector<float> got = y.read<float>();
        for (std::size_t i = 0; i < got.size(); ++i) {
          const float start = accumulate == Accumulate::kYes ? before[i] : 0.0f;
          const float sum = kFactor * plain[i] + bias[i % m];
          // Some add the bias, of 1 at most, last: two roundings each.
          ASSERT_NEAR(got[i], start + sum, 4 * kEps * (std::abs(start) + std::abs(sum) + 1))
              << "row " << i / m << " column " << i % m;
        }
      }
    }
}

TEST_P(Linear, TakesAnyNumberOfProjectionsAndNoRows) {
  std::mt19937 random(19);
  const std::size_t n = 3, k = 64, m = 8;
  const std::vector<float> x = random_floats(n * k, random);
  OnDevice xs = send(x), w = send(random_weights(DType::kQ8_0, m, k, random));
  OnDevice y = send(std::vector<float>(n * m * 6));
  const std::vector<float> one = product(x, n, k, w, DType::kQ8_0, m);
  std::vector<Projection> many;
  for (std::int64_t p = 0; p < 6; ++p)
    many.push_back({w.weights(DType::kQ8_0, m, k),
                    {},
                    y.view(DType::kF32, {n, m * 6}),
                    p * static_cast<std::int64_t>(m)});
  ops().linear(stream(), xs.view(DType::kF32, {n, k}), many);
  const std::vector<float> all = y.read<float>();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < m * 6; ++j) EXPECT_EQ(all[i * m * 6 + j], one[i * m + j % m]);
  const Projection none{w.weights(DType::kQ8_0, m, k), {}, y.view(DType::kF32, {0, m})};
  EXPECT_NO_THROW(ops().linear(stream(), xs.view(DType::kF32, {0, k}), {&none, 1}));
}

TEST_P(Linear, RefusesWhatDoesNotFit) {
  OnDevice data = send(std::vector<float>(1024));
  const auto message = [&](ConstTensorView x, Projection p) {
    try {
      ops().linear(stream(), x, {&p, 1});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const ConstTensorView x = data.view(DType::kF32, {2, 32});
  const WeightView w = data.weights(DType::kF32, 4, 32);
  const TensorView y = data.view(DType::kF32, {2, 4});
  using testing::internal::RE;
  EXPECT_EQ(message(x, {w, {}, y}), "");
  stream().synchronize();
  EXPECT_TRUE(RE::PartialMatch(message(x, {data.weights(DType::kF32, 4, 31), {}, y}),
                               "linear: w has shape \\[4, 31\\], not \\[any, 32\\]"));
  EXPECT_TRUE(RE::PartialMatch(message(x, {w, {}, y, 1}), "linear: columns \\[1, \\+ 4\\)"));
  EXPECT_TRUE(RE::PartialMatch(message(x, {w, data.view(DType::kF32, {5}), y}), "linear: bias"));
}

CANOPY_ON_EACH_DEVICE(Linear);

}  // namespace
}  // namespace canopy
