// Products and lookups with FP8 weights: the bits of those with the same weights in f32. Those with
// packed ones have the bits of those that are not.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/base/formats/fp8_format.h"
#include "src/base/formats/packed_format.h"
#include "src/convert/pack/pack_row.h"
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

/// An FP8 matrix whose rows were packed.
struct PackedFp8 {
  const PackedFormat& format;
  std::vector<std::byte> rows, companion;
};
/// `damage` may change a row's bytes.
template <class Damage>
PackedFp8 packed(const Fp8Matrix& m, const Damage& damage) {
  const auto* const format = std::ranges::find(kPackedFormats, m.dtype, &PackedFormat::plain);
  PackedFp8 made{*format, {}, {}};
  std::vector<RowOffset> offsets{1000};  // they count from anywhere
  for (std::size_t i = 0; i < m.rows; ++i) {
    const std::size_t before = made.rows.size();
    visit_format(PackedFp8Formats(), format->dtype, [&](auto of) {
      EXPECT_TRUE(pack_row(of, std::span(m.codes).subspan(i * m.columns, m.columns), made.rows));
    });
    damage(i, std::span(made.rows).subspan(before));
    offsets.push_back(offsets.back() +
                      static_cast<RowOffset>((made.rows.size() - before) / kPackedAlignment));
  }
  made.companion = with_scales(format->dtype, offsets, m.scales, dim(m.columns));
  return made;
}
PackedFp8 packed(const Fp8Matrix& m) {
  return packed(m, [](std::size_t, std::span<std::byte>) {});
}

class Fp8Packed : public Fp8 {
 protected:
  struct SentPacked {
    OnDevice rows, companion;
    WeightView view;
  };
  SentPacked send_packed(const Fp8Matrix& m, const PackedFp8& of) {
    SentPacked sent{send(of.rows, 3), send(of.companion), {}};
    sent.view =
        WeightView({sent.rows.data(), of.rows.size()}, {of.format.companion, sent.companion.data()},
                   of.format.dtype, dim(m.rows), dim(m.columns));
    return sent;
  }
  std::vector<float> lookup(const WeightView& table, std::size_t columns) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(table.rows()));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    OnDevice id = send(ids), y = send(std::vector<float>(ids.size() * columns));
    ops().embed(stream(), table, id.view(DType::kI32, {dim(ids.size())}),
                y.view(DType::kF32, {dim(ids.size()), dim(columns)}));
    return y.read<float>();
  }
};

TEST_P(Fp8Packed, ProductsHaveTheBitsOfUnpackedWeights) {
  std::mt19937 random(37);
  on_each_instruction_set([&] {
    for (const std::size_t k : {1u, 63u, 64u, 200u, 512u, 576u, 1056u, 1152u})
      for (const std::size_t m : {1u, 6u, 131u})
        for_each_format(m, k, random, [&](Fp8Matrix& matrix) {
          if (m == 6)  // as trained weights are
            for (std::uint8_t& code : matrix.codes)
              code = static_cast<std::uint8_t>((code & 0x87) | (6 + random() % 5) << 3);
          const PackedFp8 of = packed(matrix);
          const Sent plain = send_matrix(matrix);
          const SentPacked sent = send_packed(matrix, of);
          for (const std::size_t n : {1u, 3u, 4u, 5u, 9u, 100u}) {
            SCOPED_TRACE(testing::Message() << "n " << n << " k " << k << " m " << m);
            OnDevice x = send(random_floats(n * k, random)), bias = send(random_floats(m, random));
            const std::vector<float> before = random_floats(n * (m + 2), random);
            const auto product = [&](const WeightView& w) {
              OnDevice y = send(before);
              const Projection p{w.times(0.75f), bias.view(DType::kF32, {dim(m)}),
                                 y.view(DType::kF32, {dim(n), dim(m + 2)}), 1, Accumulate::kYes};
              ops().linear(stream(), x.view(DType::kF32, {dim(n), dim(k)}), {&p, 1});
              return bytes_of(y.read<float>());
            };
            ASSERT_EQ(product(plain.view), product(sent.view));
          }
        });
  });
}

TEST_P(Fp8Packed, LookupsHaveTheBitsOfTheTable) {
  std::mt19937 random(41);
  on_each_instruction_set([&] {
    for_each_format(140, 1100, random, [&](Fp8Matrix& matrix) {
      decode(matrix);
      ASSERT_EQ(lookup(send_packed(matrix, packed(matrix)).view, 1100), matrix.weights);
    });
  });
}

/// Codes of any bits, exponents among few or many.
void any_codes(Fp8Matrix& m, std::mt19937& random) {
  for (std::size_t i = 0; i < m.rows; ++i) {
    const auto begin = static_cast<std::uint8_t>(random());
    const std::uint32_t width = 1u << random() % 9;
    for (std::size_t k = 0; k < m.columns; ++k)
      m.codes[i * m.columns + k] = static_cast<std::uint8_t>(begin + random() % width);
  }
}

// The vectors agree with the plain definition, whatever a row says of itself.
TEST_P(Fp8Packed, EveryBitPatternIsUnpackedByItsDefinition) {
  std::mt19937 random(43);
  for (const std::size_t k : {1300u, 511u})
    for_each_format(300, k, random, [&](Fp8Matrix& matrix) {
      any_codes(matrix, random);
      const PackedFp8 of = packed(matrix, [&](std::size_t i, std::span<std::byte> row) {
        const std::size_t at =
            random() % 2 == 0 ? random() % 12 : row.size() - 1 - random() % (row.size() / 4);
        if (i % 3 == 1) row[at] ^= static_cast<std::byte>(1u << random() % 8);
      });
      const WeightView host({of.rows.data(), of.rows.size()},
                            {of.format.companion, of.companion.data()}, of.format.dtype,
                            dim(matrix.rows), dim(k));
      Fp8Matrix plain = matrix;  // as the definition unpacks it
      visit_format(PackedFp8Formats(), of.format.dtype, [&]<class Format>(Format) {
        std::vector<std::uint8_t> row(k + Format::kGroupColumns);
        for (std::size_t i = 0; i < matrix.rows; ++i) {
          for (std::size_t c = 0; c < k; c += Format::kGroupColumns)
            Format::decode_group(host.row(dim(i)), dim(c / Format::kGroupColumns), &row[c]);
          std::copy_n(row.begin(), k, plain.codes.begin() + dim(i * k));
        }
      });
      EXPECT_NE(plain.codes, matrix.codes);
      on_each_instruction_set([&] {
        const std::vector<float> expected = lookup(send_matrix(plain).view, k),
                                 found = lookup(send_packed(matrix, of).view, k);
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_TRUE(std::bit_cast<std::uint32_t>(found[i]) ==
                          std::bit_cast<std::uint32_t>(expected[i]) ||
                      (std::isnan(found[i]) && std::isnan(expected[i])))
              << "row " << i / k << ", column " << i % k;
      });
    });
}

CANOPY_ON_EACH_DEVICE(Fp8);
CANOPY_ON_EACH_DEVICE(Fp8Packed);

}  // namespace
}  // namespace canopy
