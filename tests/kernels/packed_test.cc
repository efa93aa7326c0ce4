// Products and lookups with packed weights: the bits of those with the weights unpacked.
#include <cmath>
#include <cstring>

#include "src/convert/pack/pack_row.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

constexpr const CompanionFormat& kCompanion = kCompanionOf<format::PackedBF16>;
CompanionView view_of(const std::vector<RowOffset>& offsets) {
  return {&kCompanion, reinterpret_cast<const std::byte*>(offsets.data())};
}

/// A matrix of BF16, and packed.
struct Matrix {
  std::size_t rows, columns;
  std::vector<std::uint16_t> plain;
  std::vector<std::byte> packed;
  std::vector<RowOffset> offsets;
};
Matrix random_matrix(std::size_t rows, std::size_t columns, std::mt19937& random) {
  std::student_t_distribution<float> drawn(3);  // with far exponents
  Matrix m{rows, columns, std::vector<std::uint16_t>(rows * columns), {}, {}};
  for (std::uint16_t& bits : m.plain) bits = bf16_from_f32(0.05f * drawn(random));
  if (columns > 3) m.plain[3] = 0x8000, m.plain[0] = 0x0001;  // a zero, a subnormal
  m.offsets.push_back(1000);                                  // they count from anywhere
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t before = m.packed.size();
    EXPECT_TRUE(
        pack_row(format::PackedBF16(), std::span(m.plain).subspan(i * columns, columns), m.packed));
    m.offsets.push_back(m.offsets.back() +
                        static_cast<RowOffset>((m.packed.size() - before) / kPackedAlignment));
  }
  return m;
}

class Packed : public OnEachDevice {
 protected:
  struct Sent {
    OnDevice plain, packed, offsets;
    WeightView as_plain, as_packed;
  };
  Sent send_both(const Matrix& m) {
    Sent sent{send(m.plain), send(m.packed, 3), send(m.offsets), {}, {}};
    sent.as_plain = sent.plain.weights(DType::kBF16, m.rows, m.columns);
    sent.as_packed =
        WeightView({sent.packed.data(), m.packed.size()}, {&kCompanion, sent.offsets.data()},
                   DType::kPackedBF16, dim(m.rows), dim(m.columns));
    return sent;
  }
};

TEST_P(Packed, ProductsHaveTheBitsOfUnpackedWeights) {
  std::mt19937 random(17);
  on_each_instruction_set([&] {
    for (const std::size_t k : {1u, 63u, 64u, 250u, 512u, 576u, 1056u, 2080u})
      for (const std::size_t m : {1u, 6u, 131u})
        for (const std::size_t n : {1u, 3u, 9u, 100u}) {
          SCOPED_TRACE(testing::Message() << "n " << n << " k " << k << " m " << m);
          const Matrix matrix = random_matrix(m, k, random);
          const Sent w = send_both(matrix);
          OnDevice x = send(random_floats(n * k, random)),
                   y = send(random_floats(n * (m + 2), random));
          const std::vector<float> before = y.read<float>();
          OnDevice z = send(before), bias = send(random_floats(m, random));
          const auto product = [&](const WeightView& weights, OnDevice& out) {
            const Projection p{weights, bias.view(DType::kF32, {dim(m)}),
                               out.view(DType::kF32, {dim(n), dim(m + 2)}), 1, Accumulate::kYes};
            ops().linear(stream(), x.view(DType::kF32, {dim(n), dim(k)}), {&p, 1});
            return bytes_of(out.read<float>());
          };
          ASSERT_EQ(product(w.as_plain, y), product(w.as_packed, z));
        }
  });
}

TEST_P(Packed, LookupsHaveTheBitsOfTheTable) {
  std::mt19937 random(19);
  on_each_instruction_set([&] {
    const std::size_t vocab = 70, k = 1100;
    const Matrix matrix = random_matrix(vocab, k, random);
    const Sent table = send_both(matrix);
    const std::vector<std::int32_t> ids{69, 0, 3, 3, 41};
    OnDevice id = send(ids), y = send(std::vector<float>(ids.size() * k, -7.0f));
    ops().embed(stream(), table.as_packed, id.view(DType::kI32, {dim(ids.size())}),
                y.view(DType::kF32, {dim(ids.size()), dim(k)}));
    const std::vector<float> rows = y.read<float>();
    for (std::size_t i = 0; i < ids.size(); ++i)
      for (std::size_t c = 0; c < k; ++c)
        ASSERT_EQ(rows[i * k + c],
                  f32_from_bf16(matrix.plain[static_cast<std::size_t>(ids[i]) * k + c]));
  });
}

// Any bit pattern a file may hold, NaN and its payload included, and rows that contradict
// themselves: the vectors agree with the plain definition.
TEST_P(Packed, EveryBitPatternIsUnpackedByItsDefinition) {
  std::mt19937 random(23);
  const std::size_t k = 1300, m = 40;
  Matrix matrix = random_matrix(m, k, random);
  matrix.packed.clear();
  matrix.offsets.resize(1);
  for (std::size_t i = 0; i < m; ++i) {
    std::vector<std::uint16_t> row(k);
    for (std::uint16_t& bits : row) bits = static_cast<std::uint16_t>(random());
    const std::size_t before = matrix.packed.size();
    ASSERT_TRUE(pack_row(format::PackedBF16(), row, matrix.packed));
    if (i % 3 == 1) matrix.packed[before + random() % 12] ^= std::byte{16};
    matrix.offsets.push_back(matrix.offsets.back() +
                             static_cast<RowOffset>((matrix.packed.size() - before) / 4));
  }
  on_each_instruction_set([&] {
    const Sent table = send_both(matrix);
    std::vector<std::int32_t> ids(m);
    for (std::size_t i = 0; i < m; ++i) ids[i] = static_cast<std::int32_t>(i);
    OnDevice id = send(ids), y = send(std::vector<float>(m * k));
    ops().embed(stream(), table.as_packed, id.view(DType::kI32, {dim(m)}),
                y.view(DType::kF32, {dim(m), dim(k)}));
    const std::vector<float> rows = y.read<float>();
    const WeightView host({matrix.packed.data(), matrix.packed.size()}, view_of(matrix.offsets),
                          DType::kPackedBF16, dim(m), dim(k));
    std::vector<float> expected(k);
    for (std::size_t i = 0; i < m; ++i) {
      row_as_f32(DType::kPackedBF16, host.row(dim(i)), expected);
      ASSERT_EQ(std::memcmp(&rows[i * k], expected.data(), k * sizeof(float)), 0) << "row " << i;
    }
  });
}

CANOPY_ON_EACH_DEVICE(Packed);

TEST(WeightView, OfPackedRows) {
  const std::vector<RowOffset> offsets{10, 12, 15};
  std::vector<std::byte> payload(20);
  const WeightView w(payload, view_of(offsets), DType::kPackedBF16, 2, 64);
  EXPECT_EQ(w.bytes(), 20u);
  EXPECT_EQ(w.row(1).data, payload.data() + 8);
  EXPECT_EQ(w.row(1).bytes, 12u);
  EXPECT_EQ(w.row(1).columns, 64);
  EXPECT_THROW(w.slice(0, 1), Error);
  EXPECT_THROW(WeightView(payload, view_of(offsets), DType::kBF16, 2, 64), Error);
  EXPECT_THROW(WeightView(payload, CompanionView(), DType::kPackedBF16, 2, 64), Error);
  EXPECT_THROW(WeightView(payload.data(), DType::kPackedBF16, 2, 64), Error);
}

}  // namespace
}  // namespace canopy
