// Products and lookups with packed weights: the bits of those with the weights unpacked.
#include <bit>
#include <cmath>
#include <cstring>

#include "src/convert/pack/pack_row.h"
#include "tests/kernels/on_device.h"

namespace canopy {
namespace {

/// One after another, those of BF16, each with its name in the messages.
template <class Run>
void on_each_format(const Run& run) {
  for (const PackedFormat& format : as_data_of_packed(PackedBf16Formats())) {
    SCOPED_TRACE(format.codec);
    run(format);
  }
}
CompanionView view_of(const PackedFormat& format, const std::vector<RowOffset>& offsets) {
  return {format.companion, reinterpret_cast<const std::byte*>(offsets.data())};
}

/// A matrix of BF16, and packed.
struct Matrix {
  const PackedFormat& format;
  std::size_t rows, columns;
  std::vector<std::uint16_t> plain;
  std::vector<std::byte> packed;
  std::vector<RowOffset> offsets;
};
/// Appends a row.
void pack_into(Matrix& m, std::span<const std::uint16_t> row) {
  const std::size_t before = m.packed.size();
  visit_format(PackedBf16Formats(), m.format.dtype,
               [&](auto format) { EXPECT_TRUE(pack_row(format, row, m.packed)); });
  m.offsets.push_back(m.offsets.back() +
                      static_cast<RowOffset>((m.packed.size() - before) / kPackedAlignment));
}
Matrix random_matrix(const PackedFormat& format, std::size_t rows, std::size_t columns,
                     std::mt19937& random) {
  std::student_t_distribution<float> drawn(3);  // with far exponents
  Matrix m{format, rows, columns, std::vector<std::uint16_t>(rows * columns), {}, {}};
  for (std::uint16_t& bits : m.plain) bits = bf16_from_f32(0.05f * drawn(random));
  if (columns > 3) m.plain[3] = 0x8000, m.plain[0] = 0x0001;  // a zero, a subnormal
  m.offsets.push_back(1000);                                  // they count from anywhere
  for (std::size_t i = 0; i < rows; ++i)
    pack_into(m, std::span(m.plain).subspan(i * columns, columns));
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
        WeightView({sent.packed.data(), m.packed.size()}, {m.format.companion, sent.offsets.data()},
                   m.format.dtype, dim(m.rows), dim(m.columns));
    return sent;
  }
};

TEST_P(Packed, ProductsHaveTheBitsOfUnpackedWeights) {
  std::mt19937 random(17);
  on_each_format([&](const PackedFormat& format) {
    on_each_instruction_set([&] {
      for (const std::size_t k : {1u, 63u, 64u, 250u, 512u, 576u, 1056u, 2080u})
        for (const std::size_t m : {1u, 6u, 131u})
          for (const std::size_t n : {1u, 3u, 9u, 100u}) {
            SCOPED_TRACE(testing::Message() << "n " << n << " k " << k << " m " << m);
            const Matrix matrix = random_matrix(format, m, k, random);
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
  });
}

TEST_P(Packed, LookupsHaveTheBitsOfTheTable) {
  std::mt19937 random(19);
  on_each_format([&](const PackedFormat& format) {
    on_each_instruction_set([&] {
      const std::size_t vocab = 70, k = 1100;
      const Matrix matrix = random_matrix(format, vocab, k, random);
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
  });
}

/// A matrix of any bit patterns that a file may hold, NaN and its payload included, the exponents
/// of a block among few or many; every third row has a bit of a header, a code or its end inverted.
Matrix hostile_matrix(const PackedFormat& format, std::size_t rows, std::size_t columns,
                      std::mt19937& random) {
  Matrix m{format, rows, columns, {}, {}, {7}};
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<std::uint16_t> row(columns);
    const auto begin = static_cast<std::uint16_t>(random());
    const std::uint32_t width = 1u << random() % 17;
    for (std::uint16_t& bits : row) bits = static_cast<std::uint16_t>(begin + random() % width);
    const std::size_t before = m.packed.size();
    pack_into(m, row);
    const std::size_t bytes = m.packed.size() - before;
    const std::size_t at = random() % 2 == 0 ? random() % 12 : bytes - 1 - random() % (bytes / 4);
    if (i % 3 == 1) m.packed[before + at] ^= static_cast<std::byte>(1u << random() % 8);
  }
  return m;
}

// The vectors agree with the plain definition, whatever a row says of itself.
TEST_P(Packed, EveryBitPatternIsUnpackedByItsDefinition) {
  std::mt19937 random(23);
  const std::size_t m = 300;
  on_each_format([&](const PackedFormat& format) {
    for (const std::size_t k : {1300u, 511u}) {
      const Matrix matrix = hostile_matrix(format, m, k, random);
      const WeightView host({matrix.packed.data(), matrix.packed.size()},
                            view_of(format, matrix.offsets), format.dtype, dim(m), dim(k));
      std::vector<std::uint16_t> plain(m * (k + 64));
      visit_format(PackedBf16Formats(), format.dtype, [&]<class Format>(Format) {
        for (std::size_t i = 0; i < m; ++i)
          for (std::size_t c = 0; c < k; c += 64)
            Format::decode_group(host.row(dim(i)), dim(c / 64), &plain[i * k + c]);
      });
      on_each_instruction_set([&] {
        const Sent table = send_both(matrix);
        std::vector<std::int32_t> ids(m);
        for (std::size_t i = 0; i < m; ++i) ids[i] = static_cast<std::int32_t>(i);
        OnDevice id = send(ids), y = send(std::vector<float>(m * k));
        ops().embed(stream(), table.as_packed, id.view(DType::kI32, {dim(m)}),
                    y.view(DType::kF32, {dim(m), dim(k)}));
        const std::vector<float> rows = y.read<float>();
        for (std::size_t i = 0; i < m * k; ++i)
          ASSERT_EQ(std::bit_cast<std::uint32_t>(rows[i]), std::uint32_t{plain[i]} << 16)
              << "row " << i / k << ", column " << i % k;
      });
    }
  });
}

CANOPY_ON_EACH_DEVICE(Packed);

TEST(WeightView, OfPackedRows) {
  const PackedFormat& format = *find_packed_format(DType::kPackedBF16);
  const std::vector<RowOffset> offsets{10, 12, 15};
  std::vector<std::byte> payload(20);
  const WeightView w(payload, view_of(format, offsets), DType::kPackedBF16, 2, 64);
  EXPECT_EQ(w.bytes(), 20u);
  EXPECT_EQ(w.row(1).data, payload.data() + 8);
  EXPECT_EQ(w.row(1).bytes, 12u);
  EXPECT_EQ(w.row(1).columns, 64);
  EXPECT_THROW(w.slice(0, 1), Error);
  EXPECT_THROW(WeightView(payload, view_of(format, offsets), DType::kBF16, 2, 64), Error);
  EXPECT_THROW(WeightView(payload, CompanionView(), DType::kPackedBF16, 2, 64), Error);
  EXPECT_THROW(WeightView(payload.data(), DType::kPackedBF16, 2, 64), Error);
}

}  // namespace
}  // namespace canopy
