// Products and lookups with FP8 weights: the bits of those with the same weights in f32.
#include <cmath>
#include <limits>

#include "src/base/formats/fp8_format.h"
#include "src/base/formats/packed_format.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

/// A matrix of random codes and scales, and its weights by their definition.
struct Fp8Matrix {
  DType dtype{};
  const CompanionFormat* companion = nullptr;
  std::size_t rows = 0, columns = 0;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, weights;
};
template <class Format>
Fp8Matrix random_fp8(std::size_t rows, std::size_t columns, std::mt19937& random) {
  Fp8Matrix m{Format::kDType, &kCompanionOf<Format>, rows, columns, {}, {}, {}};
  std::uniform_real_distribution<float> uniform(0.001f, 0.01f);
  m.scales.resize(Format::companion_bytes(dim(rows), dim(columns)) / sizeof(float));
  for (float& scale : m.scales) scale = uniform(random);
  for (std::size_t i = 0; i < rows * columns; ++i) {
    const auto code = static_cast<std::uint8_t>(random());
    m.codes.push_back((code & 0x7f) == format::kE4M3NaN ? 0x80 : code);
  }
  return m;
}
void decode(Fp8Matrix& m) {
  const auto* const codes = reinterpret_cast<const std::byte*>(m.codes.data());
  const CompanionView companion{m.companion, reinterpret_cast<const std::byte*>(m.scales.data())};
  const WeightView host({codes, m.codes.size()}, companion, m.dtype, dim(m.rows), dim(m.columns));
  m.weights.resize(m.codes.size());
  for (std::size_t i = 0; i < m.rows; ++i)
    row_as_f32(m.dtype, host.row(dim(i)), std::span(m.weights).subspan(i * m.columns, m.columns));
}

class Fp8 : public OnEachDevice {
 protected:
  struct Sent {
    OnDevice codes, scales;
    WeightView view;
  };
  Sent send_matrix(const Fp8Matrix& m) {
    Sent sent{send(m.codes, 3), send(m.scales), {}};
    sent.view = WeightView({sent.codes.data(), m.codes.size()}, {m.companion, sent.scales.data()},
                           m.dtype, dim(m.rows), dim(m.columns));
    return sent;
  }
  template <class Body>
  void for_each_format(std::size_t rows, std::size_t columns, std::mt19937& random,
                       const Body& body) {
    for (const bool blocks : {true, false}) {
      Fp8Matrix m = blocks ? random_fp8<format::E4M3Blocks>(rows, columns, random)
                           : random_fp8<format::E4M3Rows>(rows, columns, random);
      SCOPED_TRACE(m.companion->name);
      body(m);
    }
  }
  std::vector<float> product(const WeightView& w, const std::vector<float>& x, std::size_t n) {
    const auto m = static_cast<std::size_t>(w.rows());
    OnDevice at = send(x), y = send(std::vector<float>(n * m));
    const Projection p{w, {}, y.view(DType::kF32, {dim(n), dim(m)})};
    ops().linear(stream(), at.view(DType::kF32, {dim(n), w.columns()}), {&p, 1});
    return y.template read<float>();
  }
};

/// A GPU rounds these weights to f16: these are of the CPU.
class Fp8OnTheCpu : public Fp8 {};
INSTANTIATE_TEST_SUITE_P(Devices, Fp8OnTheCpu, testing::Values("cpu"));

TEST_P(Fp8OnTheCpu, ProductsOnTheCpuHaveTheBitsOfTheWeightsInF32) {
  std::mt19937 random(17);
  on_each_instruction_set([&] {
    for (const std::size_t k : {1u, 63u, 128u, 200u, 512u, 576u, 1056u, 1152u})
      for (const std::size_t m : {1u, 6u, 131u})
        for (const std::size_t n : {1u, 2u, 3u, 4u, 5u, 9u, 100u})
          for_each_format(m, k, random, [&](Fp8Matrix& matrix) {
            SCOPED_TRACE(testing::Message() << "n " << n << " k " << k << " m " << m);
            decode(matrix);
            const Sent w = send_matrix(matrix);
            OnDevice plain = send(matrix.weights);
            const std::vector<float> x = random_floats(n * k, random);
            ASSERT_EQ(bytes_of(product(w.view, x, n)),
                      bytes_of(product(plain.weights(DType::kF32, m, k), x, n)));
          });
  });
}

TEST_P(Fp8, ProductsAreThoseOfTheDefinition) {
  // A factor of a product: on a GPU weights and inputs are rounded to f16.
  const auto multiplied = [&](float value) {
    return static_cast<double>(GetParam() == "cpu" ? value : f32_from_f16(f16_from_f32(value)));
  };
  std::mt19937 random(19);
  for (const std::size_t n : {1u, 7u, 20u})
    for_each_format(140, 300, random, [&](Fp8Matrix& matrix) {
      decode(matrix);
      const Sent w = send_matrix(matrix);
      const std::vector<float> x = random_floats(n * 300, random), y = product(w.view, x, n);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < 140; ++j) {
          double sum = 0, absolute = 0;
          for (std::size_t k = 0; k < 300; ++k) {
            const double term =
                multiplied(x[i * 300 + k]) * multiplied(matrix.weights[j * 300 + k]);
            sum += term, absolute += std::abs(term);
          }
          // math.md (C2)
          ASSERT_NEAR(static_cast<double>(y[i * 140 + j]), sum, 307 * kEps * absolute);
        }
    });
}

TEST_P(Fp8, LookupsHaveTheBitsOfTheTable) {
  std::mt19937 random(23);
  on_each_instruction_set([&] {
    for_each_format(140, 300, random, [&](Fp8Matrix& matrix) {
      decode(matrix);
      const Sent table = send_matrix(matrix);
      const std::vector<std::int32_t> ids{139, 0, 127, 128};
      OnDevice id = send(ids), y = send(std::vector<float>(ids.size() * 300));
      ops().embed(stream(), table.view, id.view(DType::kI32, {dim(ids.size())}),
                  y.view(DType::kF32, {dim(ids.size()), 300}));
      const std::vector<float> rows = y.read<float>();
      for (std::size_t i = 0; i < ids.size(); ++i)
        for (std::size_t k = 0; k < 300; ++k)
          ASSERT_EQ(rows[i * 300 + k], matrix.weights[static_cast<std::size_t>(ids[i]) * 300 + k]);
    });
  });
}

TEST_P(Fp8, ACodeThatIsNoNumberMakesItsSumsNoNumbersWhateverTheRowsInFlight) {
  std::mt19937 random(29);
  on_each_instruction_set([&] {
    for (const std::uint8_t code : {std::uint8_t{0x7f}, std::uint8_t{0xff}})
      for (const std::size_t at : {0u, 127u, 200u, 383u})
        for_each_format(9, 384, random, [&](Fp8Matrix& matrix) {
          matrix.codes[4 * 384 + at] = code;
          const Sent w = send_matrix(matrix);
          for (const std::size_t n : {1u, 3u, 20u}) {
            const std::vector<float> y = product(w.view, random_floats(n * 384, random), n);
            for (std::size_t i = 0; i < n * 9; ++i) ASSERT_EQ(std::isnan(y[i]), i % 9 == 4);
          }
        });
  });
}

TEST_P(Fp8OnTheCpu, TheSmallestAndTheLargestScalesAreKept) {
  std::mt19937 random(31);
  on_each_instruction_set([&] {
    for (const float scale : {std::numeric_limits<float>::denorm_min(), 0x1.8p-140f, 0x1p-127f,
                              0x1.fp-3f, 0x1.234p9f, 0x1p119f})
      for_each_format(5, 256, random, [&](Fp8Matrix& matrix) {
        for (float& one : matrix.scales) one = scale;
        decode(matrix);
        const Sent w = send_matrix(matrix);
        for (std::size_t k = 0; k < 256; k += 37) {  // a weight alone
          std::vector<float> x(256);
          x[k] = 1;
          const std::vector<float> y = product(w.view, x, 1);
          for (std::size_t j = 0; j < 5; ++j) ASSERT_EQ(y[j], matrix.weights[j * 256 + k]);
        }
      });
  });
}

CANOPY_ON_EACH_DEVICE(Fp8);

}  // namespace
}  // namespace canopy
